/** bars: prices and volumes a minute, from CSV or Parquet files or made from a seed, and what there is to know of them. */

export { type BarColumn, type Bars, barColumns } from "./bars.js";
export { type BarsSummary, checkBars } from "./check.js";
export { checksumOfBars } from "./checksum.js";
export { type GenerateOptions, generateBars, generateMarket, type Market } from "./generate.js";
export { type OracleAccuracy, oracleAccuracy, type ScaleAccuracy } from "./oracle.js";
export { readBars } from "./read.js";
export { writeBars } from "./write.js";
