/** bars: prices and volumes per minute. Reads, writes, generates and checks them. */

export { type BarColumn, type Bars, barColumns } from "./bars.js";
export { type BarsSummary, checkBars } from "./check.js";
export { checksumOfBars } from "./checksum.js";
export { type GenerateOptions, generateBars, generateMarket, type Market } from "./generate.js";
export { type OracleAccuracy, oracleAccuracy, type ScaleAccuracy } from "./oracle.js";
export { readBars } from "./read.js";
export { writeBars } from "./write.js";
