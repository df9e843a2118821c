/** bars: prices and volumes per minute. Reads, writes and generates them. */

export { type BarColumn, type Bars, barColumns } from "./bars.js";
export { checksumOfBars } from "./checksum.js";
export { type GenerateOptions, generateBars, generateMarket, type Market } from "./generate.js";
export { readBars } from "./read.js";
export { writeBars } from "./write.js";
