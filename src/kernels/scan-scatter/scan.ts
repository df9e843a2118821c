/** Prefix acc along an axis. */

import type { KernelSource } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import type { LaunchCommand } from "../../runtime/index.js";
import type { Backend } from "../backend-interface.js";
import { advance, repeat } from "../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../codegen/wasm/wasm-function.js";
import type { KernelCall } from "../kernel-call.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { columnsOf, forColumnGroups, type Group, type ScanDtype } from "./element.js";
import type { Scan } from "./problem.js";
import { forEachItem, planStrips, requireAvailable, setToElementAddress, stripParameters } from "./strips.js";

/** A cache line of columns at a time. */
const vectorsPerStrip = 4;

const scanParameters = {
  input: "in",
  output: "out",
  length: "u32",
  /** The first index along the axis, and the byte stride to the next element, as its 32-bit pattern. */
  first: "u32",
  step: "u32",
  ...stripParameters,
} as const;

/**
 * `output[o, l, i] = input[o, 0, i] + … + input[o, l, i]`, added in this order: any number of threads gives the same bits.
 *
 * ```js
 * submit(runtime, scanCalls(backendOf(runtime), { dtype: "f32", outer: 32, length: 128, inner: 1, input: x, output: y, op: "add" }));
 * ```
 */
export function scanCalls(
  backend: Pick<Backend, "lowerScan">,
  scan: Scan,
  op = "scan",
): readonly KernelCall[] {
  const { dtype, outer, length, inner, input, output } = scan;
  const shape = [outer, length, inner];
  requireAvailable(
    op,
    { outer, length, inner },
    { input: { storage: input, dtype, shape }, output: { storage: output, dtype, shape } },
  );
  return shape.includes(0) ? [] : [backend.lowerScan(scan, op)];
}

export function lowerScanOnWasm(scan: Scan, op: string): LaunchCommand {
  const { dtype, outer, length, inner, input, output, isReversed = false } = scan;
  const plan = planStrips(outer, inner, length, columnsOf(dtype, vectorsPerStrip));
  const rowBytes = inner * dtypes[dtype].bytes;
  return {
    ...{ kind: "launch", op },
    source: scanKernel(dtype),
    blocks: plan.blocks,
    arguments: argumentsInOrder(scanParameters, {
      ...plan.arguments,
      input,
      output,
      length,
      first: isReversed ? length - 1 : 0,
      step: (isReversed ? -rowBytes : rowBytes) >>> 0,
    }),
  };
}

function scanKernel(dtype: ScanDtype): KernelSource {
  return cachedSource(`wasm scan ${dtype}`, () => printScan(dtype));
}

function printScan(dtype: ScanDtype): KernelSource {
  const { bytes } = dtypes[dtype];
  return wasmKernel(`scan.${dtype}`, scanParameters, [], (code, given) => {
    const { from, to, remaining } = localsOf(code, "i32", "from", "to", "remaining");

    const scan = ({ count, type, bytes: valueBytes, load, store, add, pushZero }: Group): void => {
      const acc = Array.from({ length: count }, () => code.local(type));
      for (const sum of acc) {
        pushZero(code);
        code.set(sum);
      }
      code.get(given.length).set(remaining);
      repeat(code, remaining, () => {
        for (const [index, sum] of acc.entries()) {
          const offset = index * valueBytes;
          code.get(to).get(sum).get(from).memory(load, offset).op(add).tee(sum).memory(store, offset);
        }
        advance(code, from, given.step);
        advance(code, to, given.step);
      });
    };

    forEachItem(code, given, columnsOf(dtype, vectorsPerStrip), ({ outer, column, end }) => {
      forColumnGroups(code, dtype, vectorsPerStrip, { column, end }, (group) => {
        const element = { outer, length: given.length, row: given.first, inner: given.inner, column, bytes };
        setToElementAddress(code, from, { ...element, base: given.input });
        setToElementAddress(code, to, { ...element, base: given.output });
        scan(group);
      });
    });
  });
}
