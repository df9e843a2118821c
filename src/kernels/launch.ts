/** Launches row and column kernels over operands in device memory; what is printed of them for a device is kept. */

import type { DeviceInfo, KernelSource } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import type { ColumnKernel, Iteration, RowKernel } from "../ir/index.js";
import { factsOf } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { callListenerOf } from "./call-listener.js";
import { cudaColumnConfig } from "./codegen/cuda/column-config.js";
import {
  areColumnArgumentsFew,
  columnGroupConfig,
  columnScratchBytes,
  isSplitReduction,
  type PartialColumns,
  splitColumnConfig,
} from "./codegen/cuda/combo/column-group.js";
import type { ComboLaunch } from "./codegen/cuda/combo/combo-kernel.js";
import { cudaRowConfig } from "./codegen/cuda/row-config.js";
import { wasmColumnConfig, wasmRowConfig } from "./codegen/wasm/configs.js";
import type { Columns, LaunchConfig } from "./launch-config.js";

type Prints = WeakMap<RowKernel | ColumnKernel, Map<string, KernelSource>>;

const printed: Readonly<Record<DeviceInfo["kind"], Prints>> = { cpu: new WeakMap(), cuda: new WeakMap() };

/** The kernel's code for a device and a layout, printed at its first use. */
export function sourceOf(
  device: DeviceInfo["kind"],
  kernel: RowKernel | ColumnKernel,
  form: Pick<LaunchConfig, "key" | "print">,
): KernelSource {
  const byKey = printed[device].get(kernel) ?? new Map<string, KernelSource>();
  const known = byKey.get(form.key);
  if (known) return known;
  const source = form.print();
  byKey.set(form.key, source);
  printed[device].set(kernel, byKey);
  return source;
}

interface Operands {
  /** The inputs, then the outputs. */
  readonly operands: readonly Storage[];
  readonly scalars?: readonly number[];
}

export interface RowLaunch extends Operands {
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  /**
   * By input, where the launch may begin before the one before it on its stream has ended: is it good by then? On a GPU those are
   * fetched before the launch waits.
   */
  readonly early?: readonly boolean[] | undefined;
}

/** Is there anything to launch? What can't run over its iteration is rejected. */
export function hasRows({ kernel, iteration }: Omit<RowLaunch, "operands">): boolean {
  const { isElementwise, usesPlace } = factsOf(kernel);
  if (iteration.kind === "elements" && (!isElementwise || usesPlace)) throw needsRows(kernel, isElementwise);
  return iteration.rows > 0 && !(isElementwise && iteration.elements === 0);
}

/** With no rows, or no elements to store, nothing is launched. */
export function launchRows(runtime: Runtime, rowLaunch: RowLaunch): void {
  const { kernel, iteration, operands, scalars = [], early } = rowLaunch;
  if (!hasRows(rowLaunch)) return;
  const listener = callListenerOf(runtime);
  if (listener) {
    listener.rows(rowLaunch);
    return;
  }
  const form =
    runtime.device.kind === "cuda"
      ? cudaRowConfig(kernel, iteration, operands, early)
      : wasmRowConfig(kernel, iteration);
  launch(runtime, kernel, form, operands, scalars);
}

export interface ColumnLaunch extends Operands, Columns {
  readonly kernel: ColumnKernel;
}

/** With no columns nothing is launched; with no rows every column becomes what its reduction starts from. */
export function launchColumns(runtime: Runtime, columnLaunch: ColumnLaunch): void {
  const { kernel, operands, scalars = [] } = columnLaunch;
  if (columnLaunch.columns === 0) return;
  const listener = callListenerOf(runtime);
  if (listener) {
    listener.columns(columnLaunch);
    return;
  }
  const { kind, parallelism } = runtime.device;
  const form =
    kind === "cuda"
      ? cudaColumnConfig(kernel, columnLaunch, parallelism)
      : wasmColumnConfig(kernel, columnLaunch);
  launch(runtime, kernel, form, operands, scalars);
}

/** Can these column kernels be run together? On a GPU that is worth it where one of them leaves most of it idle. */
export function canGroupColumns({ device }: Runtime, kernels: readonly ColumnKernel[]): boolean {
  return device.kind === "cuda" && areColumnArgumentsFew(kernels);
}

export interface ColumnGroupOptions {
  readonly scratch?: Storage | undefined;
  /** What an earlier launch has begun: it is joined here. */
  readonly begun?: PartialColumns | undefined;
  readonly op?: string;
}

/**
 * Column kernels that don't wait for each other, in one launch, and one more where columns have many rows: `scratch` is memory
 * in between, of `columnScratchBytes`. `canGroupColumns` says beforehand whether that is possible. Their bits are those of
 * `launchColumns`.
 */
export function launchColumnGroup(
  runtime: Runtime,
  launches: readonly ColumnLaunch[],
  { scratch, begun, op = "columns" }: ColumnGroupOptions = {},
): void {
  const full = launches.filter(({ columns }) => columns > 0);
  const all = [...full, ...(begun?.members ?? [])];
  const [first] = all;
  if (!first) return;
  const kernels = all.map(({ kernel }) => kernel);
  if (!canGroupColumns(runtime, kernels)) throw cannotGroup(kernels);
  requireScratch(columnScratchBytes(full), scratch);
  if (begun) requireScratch(columnScratchBytes(begun.members), begun.scratch);
  const forms = columnGroupConfig(full, scratch, begun);
  for (const [step, form] of forms.entries()) launchCombo(runtime, first.kernel, form, `step ${step}`, op);
}

/** The first step of column kernels with many rows. `launchColumnGroup` makes the second, wherever that is wanted. */
export function launchPartials(runtime: Runtime, begun: PartialColumns, op = "columns"): void {
  const kernels = begun.members.map(({ kernel }) => kernel);
  const [first] = kernels;
  if (!first) return;
  if (!canGroupColumns(runtime, kernels)) throw cannotGroup(kernels);
  const brief = begun.members.find((one) => !isSplitReduction(one));
  if (brief) throw hasOneStep(brief);
  requireScratch(columnScratchBytes(begun.members), begun.scratch);
  launchCombo(runtime, first, splitColumnConfig(begun), "begun", op);
}

/** `first`: with whom the printed code is kept; `what`: which of its launches it is. */
function launchCombo(
  runtime: Runtime,
  first: ColumnKernel,
  form: ComboLaunch,
  what: string,
  op: string,
): void {
  runtime.launch({
    op,
    kernel: runtime.kernel(sourceOf("cuda", first, { ...form, key: `${what}: ${form.key}` })),
    blocks: form.blocks,
    arguments: form.arguments,
  });
}

function requireScratch(needed: number, scratch: Storage | undefined): void {
  const given = scratch?.span.size ?? 0;
  if (given >= needed) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `These column kernels leave partial results of ${needed} bytes, and were given ${given} bytes of scratch memory. Ask ` +
      "columnScratchBytes how much they need.",
    { numbers: { needed, given } },
  );
}

function cannotGroup(kernels: readonly ColumnKernel[]): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${kernels.length} column kernels can't be run together here: only a GPU does, and a launch has 4 KiB of ` +
      "arguments. Ask canGroupColumns first.",
    { numbers: { kernels: kernels.length } },
  );
}

function hasOneStep({ kernel, rows }: Pick<ColumnLaunch, "kernel" | "rows">): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${kernel.name}" reduces ${rows} rows in one step, so that there is nothing to begin. Ask isSplitReduction first.`,
    { numbers: { rows } },
  );
}

function launch(
  runtime: Runtime,
  kernel: RowKernel | ColumnKernel,
  form: LaunchConfig,
  operands: readonly Storage[],
  scalars: readonly number[],
): void {
  runtime.launch({
    op: kernel.name,
    kernel: runtime.kernel(sourceOf(runtime.device.kind, kernel, form)),
    blocks: form.blocks,
    arguments: [...operands, ...form.sizes, ...scalars],
  });
}

function needsRows({ name }: RowKernel, isElementwise: boolean): HoldfastError {
  const what = isElementwise ? "asks for places in rows" : "reduces rows, or stores one value for each";
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${name}" ${what}, and was launched over elements, which may be cut into any rows. Iterate over rows.`,
  );
}
