/** A number with its noun, for a message: "1 job", "2 jobs". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
