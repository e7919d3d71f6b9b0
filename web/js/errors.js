// What the package throws.

/** One line that says what was expected and what came, and a `code` to act on: see index.d.ts. */
export class DeltanetError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "DeltanetError";
    this.code = code;
  }
}

/** A value in a few words. */
function inWords(value) {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "function") return "a function";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object" && value !== null) return `an object (${value.constructor?.name ?? "without a class"})`;
  return String(value);
}

export const wrong = (what, expected, got) =>
  new DeltanetError("argument", `${what}: expected ${expected}, got ${inWords(got)}`);

export const disposed = (what, why = "it has been disposed of") => new DeltanetError("disposed", `${what}: ${why}`);
