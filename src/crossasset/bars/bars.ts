/** Bars: prices and volumes of one market, one bar per minute, ascending in time; gaps are allowed. */

/** One array per column, all of the same length. */
export interface Bars {
  /** The start or end of each bar, in milliseconds since 1970 (UTC). */
  readonly time: Float64Array;
  readonly open: Float64Array;
  readonly high: Float64Array;
  readonly low: Float64Array;
  readonly close: Float64Array;
  readonly volume: Float64Array;
}

/** In file order. */
export const barColumns = ["time", "open", "high", "low", "close", "volume"] as const;
export type BarColumn = (typeof barColumns)[number];
