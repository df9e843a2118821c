/**
 * The colours of series, for light and dark pages. Each has enough contrast on both backgrounds, and any two are distinct for
 * colour-blind users. A test checks both.
 */

/** Other colours of canvases. A test checks that the style sheet has the same. */
export const inks = {
  light: { ground: "#ffffff", text: "#1c2330", muted: "#5a6473", line: "#e3e6eb", alert: "#b3261e" },
  dark: { ground: "#1a1e25", text: "#e6e9ef", muted: "#9aa4b2", line: "#2d333d", alert: "#f0857d" },
} as const;

export type Ink = (typeof inks)[keyof typeof inks];

/** Blue, orange, green, magenta, olive, lavender. */
export const seriesColours = ["#2f6fd0", "#d97a00", "#49a478", "#b3487e", "#7f6b00", "#8d89b8"] as const;

/** With more series than colours, lines are dashed. */
const dashes: readonly (readonly number[])[] = [[], [6, 4], [2, 3]];

export interface SeriesLook {
  readonly colour: string;
  /** The canvas dash pattern; empty is a solid line. */
  readonly dash: readonly number[];
}

/** The style of the series with this index. */
export function lookOf(index: number): SeriesLook {
  const colour = seriesColours[index % seriesColours.length] ?? seriesColours[0];
  const dash = dashes[Math.floor(index / seriesColours.length) % dashes.length] ?? [];
  return { colour, dash };
}

/** Assigns a style to each name. Additional names do not change earlier styles. */
export function assignLooks(names: readonly string[]): ReadonlyMap<string, SeriesLook> {
  return new Map([...new Set(names)].map((name, index) => [name, lookOf(index)]));
}

/** The colour of each phase of a step. */
export const phaseColours = {
  forward: seriesColours[0],
  backward: seriesColours[1],
  update: seriesColours[2],
  scratch: "#8a93a3",
} as const;
