const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

/** A number with its thousands apart: "12,345.67". */
export function grouped(value: number): string {
  return GROUPED.format(value);
}

/** A calendar window: "day in America/New_York". */
export function calendarInWords(calendar: string): string {
  return calendar.replace(" ", " in ");
}

/** A number with its noun, for a message: "1 job", "2 jobs". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** The same with its thousands apart: "1 staged job", "12,345 staged jobs". */
export function some(count: number, noun: string): string {
  return counted(count, noun).replace(/^\d+/, grouped(count));
}
