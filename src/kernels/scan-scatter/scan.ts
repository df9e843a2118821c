/** Sums along an axis, each element with all before it. */

import type { KernelSource } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import type { Backend } from "../backend.js";
import { advance, repeat } from "../codegen/wasm/loops.js";
import { argumentsInOrder, localsOf, wasmKernel } from "../codegen/wasm/wasm-function.js";
import type { KernelCall } from "../kernel-call.js";
import { cachedSource } from "../source-cache.js";
import { columnsOf, forColumnGroups, type Group, type WalkDtype } from "./element.js";
import { forEachPiece, planStrips, requireAvailable, setToPlace, stripParameters } from "./strips.js";

/** A cache line of columns at a time. */
const vectorsPerStrip = 4;

export interface Scan {
  readonly dtype: WalkDtype;
  /** Input and output are [outer, length, inner], contiguous, and may be the same storage. */
  readonly outer: number;
  readonly length: number;
  readonly inner: number;
  readonly input: Storage;
  readonly output: Storage;
  /** How an element is joined with those before it. */
  readonly op: "add";
  /** From the axis' end to its beginning: the gradient of a scan from beginning to end. */
  readonly isReversed?: boolean;
}

const scanParameters = {
  input: "in",
  output: "out",
  length: "u32",
  /** Where along the axis the walk begins, and the bytes to the next element, as their 32-bit pattern. */
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

function scanKernel(dtype: WalkDtype): KernelSource {
  return cachedSource(`wasm scan ${dtype}`, () => printScan(dtype));
}

function printScan(dtype: WalkDtype): KernelSource {
  const { bytes } = dtypes[dtype];
  return wasmKernel(`scan.${dtype}`, scanParameters, [], (code, given) => {
    const { from, to, left } = localsOf(code, "i32", "from", "to", "left");

    const walk = ({ count, type, bytes: valueBytes, load, store, add, pushNothing }: Group): void => {
      const sums = Array.from({ length: count }, () => code.local(type));
      for (const sum of sums) {
        pushNothing(code);
        code.set(sum);
      }
      code.get(given.length).set(left);
      repeat(code, left, () => {
        for (const [index, sum] of sums.entries()) {
          const offset = index * valueBytes;
          code.get(to).get(sum).get(from).memory(load, offset).op(add).tee(sum).memory(store, offset);
        }
        advance(code, from, given.step);
        advance(code, to, given.step);
      });
    };

    forEachPiece(code, given, columnsOf(dtype, vectorsPerStrip), ({ outer, column, end }) => {
      forColumnGroups(code, dtype, vectorsPerStrip, { column, end }, (group) => {
        const place = { outer, length: given.length, row: given.first, inner: given.inner, column, bytes };
        setToPlace(code, from, { ...place, base: given.input });
        setToPlace(code, to, { ...place, base: given.output });
        walk(group);
      });
    });
  });
}
