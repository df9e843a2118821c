/** Prefix sums along an axis. */

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
 * `output[o, l, i] = input[o, 0, i] + … + input[o, l, i]`, added in this order. So the bits do not depend on the number of threads.
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
  return wasmKernel(`scan.${dtype}`, scanParameters, [], (code, args) => {
    const { from, to, remaining } = localsOf(code, "i32", "from", "to", "remaining");

    const scan = ({ count, type, bytes: valueBytes, load, store, add, pushZero }: Group): void => {
      const sums = Array.from({ length: count }, () => code.local(type));
      for (const sum of sums) {
        pushZero(code);
        code.set(sum);
      }
      code.get(args.length).set(remaining);
      repeat(code, remaining, () => {
        for (const [index, sum] of sums.entries()) {
          const offset = index * valueBytes;
          code.get(to).get(sum).get(from).memory(load, offset).op(add).tee(sum).memory(store, offset);
        }
        advance(code, from, args.step);
        advance(code, to, args.step);
      });
    };

    forEachItem(code, args, columnsOf(dtype, vectorsPerStrip), ({ outer, column, end }) => {
      forColumnGroups(code, dtype, vectorsPerStrip, { column, end }, (group) => {
        const element = { outer, length: args.length, row: args.first, inner: args.inner, column, bytes };
        setToElementAddress(code, from, { ...element, base: args.input });
        setToElementAddress(code, to, { ...element, base: args.output });
        scan(group);
      });
    });
  });
}
