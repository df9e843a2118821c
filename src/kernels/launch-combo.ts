/** Launches row kernels beside each other: one launch for several that don't wait for each other. */

import { HoldfastError } from "../errors/index.js";
import type { Runtime } from "../runtime/index.js";
import { canGroupRows, rowGroupConfig } from "./codegen/cuda/combo/row-group.js";
import { hasRows, type RowLaunch, sourceOf } from "./launch.js";

/** Can these row kernels be run beside each other? On a GPU that is worth it where one of them is little more than a launch. */
export function canComboRows({ device }: Runtime, launches: readonly Omit<RowLaunch, "operands">[]): boolean {
  return device.kind === "cuda" && canGroupRows(launches);
}

/**
 * Row kernels none of which reads or writes what another one writes, in one launch. `canComboRows` says beforehand whether that
 * is possible. Their bits are those of `launchRows`.
 */
export function launchRowCombo(
  runtime: Runtime,
  launches: readonly RowLaunch[],
  { op = "rows" }: { readonly op?: string } = {},
): void {
  const full = launches.filter(hasRows);
  const [first] = full;
  if (!first) return;
  if (!canComboRows(runtime, full)) throw cannotCombine(full.length);
  const form = rowGroupConfig(full);
  runtime.launch({
    op,
    kernel: runtime.kernel(sourceOf("cuda", first.kernel, { ...form, key: `beside ${form.key}` })),
    blocks: form.blocks,
    arguments: form.arguments,
  });
}

function cannotCombine(kernels: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${kernels} row kernels can't be run beside each other here: only a GPU does, a launch has 4 KiB of arguments, and a row ` +
      "that is reduced has no more than 8192 elements. Ask canComboRows first.",
    { numbers: { kernels } },
  );
}
