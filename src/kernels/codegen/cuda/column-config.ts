/** Selects the layout and the launch parameters of a column kernel on a GPU. */

import type { ColumnKernel } from "../../../ir/index.js";
import { dtypes } from "../../../ir/index.js";
import { maxThreadsPerBlock, sectorBytes } from "../../cost-model.js";
import type { Columns, LaunchConfig } from "../../launch-config.js";
import { type ColumnLayout, printColumnKernel } from "./column-kernel.js";
import { requireCountable, requireStride } from "./limits.js";

/**
 * The number of partials of a column: 32; from 128 rows on 128; from 1024 rows on 1024. The bits of a result follow from these, so they are
 * the same on every device.
 */
const minPartials = 32;
export const mediumPartials = 128;
export const maxPartials = 1024;
/** Columns of a block: at most a sector of f32, and as many as a block with 32 partials per column has warps. */
export const maxColumnsPerBlock = sectorBytes / dtypes.f32.bytes;
/** Loads in flight per thread, over all inputs: enough to hide DRAM latency. Measured on an H200 (`bench/gpu/compiled.ts`, CrossAsset). */
const maxLoadsInFlight = 16;

/** Threads of a block whose threads reduce a column each. */
const columnThreads = 256;

/**
 * True if each thread reduces a whole column: there are few rows, and enough columns for a block per SM. The sum of a batch's gradients
 * of a position embedding is an example.
 */
export function reducesInThread(
  { rows, columns }: Pick<Columns, "rows" | "columns">,
  parallelism: number,
): boolean {
  return rows <= minPartials && columns >= parallelism * columnThreads;
}

/** `parallelism`: the number of SMs. It does not change the bits of a result, which follow from the number of rows. */
export function cudaColumnConfig(kernel: ColumnKernel, launch: Columns, parallelism: number): LaunchConfig {
  const { columns, strides } = launch;
  const sizes = columnSizes(kernel, launch);
  const layout = layoutOf(kernel, launch, parallelism);
  let key = `c${layout.partials}/${layout.columns}/${layout.loadedRows ?? layout.unroll}`;
  for (const { column } of strides) key += column[0];
  if (layout.usesFastMath) key += "/fast";
  if (layout.runs) key += `/${layout.runs.length}/${layout.runs.group ?? 0}`;
  return {
    key,
    blocks: Math.ceil(columns / layout.columns),
    sizes,
    print: () => printColumnKernel(kernel, layout),
  };
}

/** The launch parameters after the operands. */
export function columnSizes(
  kernel: ColumnKernel,
  { rows, columns, strides, runs }: Columns,
): readonly number[] {
  requireCountable(kernel, rows, "rows");
  requireCountable(kernel, columns, "columns");
  const between = runs ? strides.map(({ run = 0 }) => run) : [];
  return [
    rows,
    columns,
    ...[...strides.map(({ row }) => row), ...between].map((at) => requireStride(kernel, at)),
  ];
}

/** How many partials a column has. The bits of a result follow from it. */
export function columnPartials(rows: number): number {
  if (rows < mediumPartials) return minPartials;
  return rows < maxPartials ? mediumPartials : maxPartials;
}

/** The number of neighbouring columns in a 32-byte sector of the widest input; two blocks share a sector of 16-bit inputs. */
function sectorColumns({ inputs }: ColumnKernel, { strides }: Columns): number {
  const varying = inputs.filter((_, index) => strides[index]?.column === "unit");
  const widest = Math.max(...varying.map((dtype) => dtypes[dtype].bytes), 1);
  return Math.min(maxColumnsPerBlock, sectorBytes / widest);
}

function layoutOf(kernel: ColumnKernel, launch: Columns, parallelism: number): ColumnLayout {
  const { rows, strides, runs, usesFastMath = false } = launch;
  const partials = columnPartials(rows);
  const shared = {
    strides: strides.map(({ column }) => column),
    partials,
    usesFastMath,
    ...(runs && { runs }),
  };
  if (reducesInThread(launch, parallelism)) {
    const loadedRows = 2 ** Math.ceil(Math.log2(rows));
    return { ...shared, lanes: 1, columns: columnThreads, unroll: 1, loadedRows };
  }
  const columns = columnsPerBlock(kernel, launch, parallelism);
  const lanes = Math.min(partials, maxThreadsPerBlock / columns);
  const loadsPerRow = (partials / lanes) * Math.max(1, kernel.inputs.length);
  let unroll = 1;
  while (unroll * partials < rows && 2 * unroll * loadsPerRow <= maxLoadsInFlight) unroll *= 2;
  return { ...shared, lanes, columns, unroll };
}

/**
 * A sector of columns, halved while the blocks cover at most a quarter of the SMs. Then several blocks read the same sectors. Beyond half of
 * the SMs, reading sectors twice would cost more than the parallelism gains.
 */
function columnsPerBlock(kernel: ColumnKernel, launch: Columns, parallelism: number): number {
  let count = sectorColumns(kernel, launch);
  while (count > 1 && 4 * Math.ceil(launch.columns / count) <= parallelism) count /= 2;
  return count;
}
