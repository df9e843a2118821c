/**
 * One set of colours for series, made for light and for dark pages alike: each stands out from both grounds, and any two can be
 * told apart by those who see fewer colours. A test computes both.
 */

/** What canvases need besides the series; the style sheet has the same, which a test holds. */
export const inks = {
  light: { ground: "#ffffff", text: "#1c2330", muted: "#5a6473", line: "#e3e6eb", alert: "#b3261e" },
  dark: { ground: "#1a1e25", text: "#e6e9ef", muted: "#9aa4b2", line: "#2d333d", alert: "#f0857d" },
} as const;

export type Ink = (typeof inks)[keyof typeof inks];

/** Blue, orange, green, magenta, olive, lavender. */
export const seriesColours = ["#2f6fd0", "#d97a00", "#49a478", "#b3487e", "#7f6b00", "#8d89b8"] as const;

/** Where there are more series than colours, the line is broken: a second difference besides the colour. */
const dashes: readonly (readonly number[])[] = [[], [6, 4], [2, 3]];

export interface SeriesLook {
  readonly colour: string;
  /** As a canvas takes it: empty is a whole line. */
  readonly dash: readonly number[];
}

/** The look of the series with this place among all of them. */
export function lookOf(place: number): SeriesLook {
  const colour = seriesColours[place % seriesColours.length] ?? seriesColours[0];
  const dash = dashes[Math.floor(place / seriesColours.length) % dashes.length] ?? [];
  return { colour, dash };
}

/** Gives each name a look; the first ones keep theirs when more names come behind them. */
export function assignLooks(names: readonly string[]): ReadonlyMap<string, SeriesLook> {
  return new Map([...new Set(names)].map((name, place) => [name, lookOf(place)]));
}

/** What each part of a step is drawn in. */
export const phaseColours = {
  forward: seriesColours[0],
  backward: seriesColours[1],
  update: seriesColours[2],
  scratch: "#8a93a3",
} as const;
