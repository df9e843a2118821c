/** data/parquet: reads columns of Parquet files in a worker thread, within limits of time and memory. */

export type { ParquetColumn, ParquetNumbers } from "./column-values.js";
export { type ParquetReadLimits, readParquetColumns } from "./read-columns.js";
