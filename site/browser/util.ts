// The checks of node:util that the engine makes of values, also of those of another realm.
const isOf = (name: string) => (value: unknown) =>
  Object.prototype.toString.call(value) === `[object ${name}]`;

export const types = {
  isDate: isOf("Date"),
  isMap: isOf("Map"),
  isSet: isOf("Set"),
  isPromise: isOf("Promise"),
};
