/** The calls of vmap that are running, from the outermost to the innermost. */

/** How ops with random numbers run inside vmap, by PyTorch's names. */
export type Randomness = "error" | "different" | "same";

/** One running call of vmap. */
export interface Level {
  /** The number of members. */
  readonly size: number;
  readonly randomness: Randomness;
  /** 1 for the outermost. */
  readonly depth: number;
}

const levels: Level[] = [];

export function innermostLevel(): Level | undefined {
  return levels.at(-1);
}

/** Runs a function at a new innermost level. */
export function atNewLevel<T>(size: number, randomness: Randomness, body: (level: Level) => T): T {
  const level = { size, randomness, depth: levels.length + 1 };
  levels.push(level);
  try {
    return body(level);
  } finally {
    levels.pop();
  }
}

export function isOpen(level: Level): boolean {
  return levels.includes(level);
}

/** Runs a function as if a level, and those inside it, had not begun. */
export function outside<T>(level: Level, body: () => T): T {
  const suspended = levels.splice(levels.indexOf(level));
  try {
    return body();
  } finally {
    levels.push(...suspended);
  }
}

/** True if members of any running call share random numbers. */
export function hasSameLevel(): boolean {
  return levels.some(({ randomness }) => randomness === "same");
}
