/** Bars: prices and volumes of one market, a bar a minute, ascending in time; gaps are legal. */

/** One array for each column; all have the same length. */
export interface Bars {
  /** When each bar ended or began, in milliseconds since 1970 (UTC). */
  readonly time: Float64Array;
  readonly open: Float64Array;
  readonly high: Float64Array;
  readonly low: Float64Array;
  readonly close: Float64Array;
  readonly volume: Float64Array;
}

/** In the order in which files have them. */
export const barColumns = ["time", "open", "high", "low", "close", "volume"] as const;
export type BarColumn = (typeof barColumns)[number];
