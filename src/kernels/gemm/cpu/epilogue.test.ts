/** Products with a bias and an activation, by a device's library and by our own kernels: all of them come to the same. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  decodeFloats,
  encodeFloats,
  type FloatName,
  floatBytes,
} from "../../../../test/support/encoded-values.js";
import { kernelDevices, put } from "../../../../test/support/kernel-runtime.js";
import {
  biasStepOf,
  checkValues,
  expectedOf,
  layOutGemm,
  type RandomGemm,
  randomGemms,
  valuesFor,
} from "../../../../test/support/random-gemms.js";
import type { Runtime, Storage } from "../../../runtime/index.js";
import { backendOf, lowerCalls } from "../../backend.js";
import { submit } from "../../submit.js";
import type { GemmInputDtype, GemmProblem } from "../desc.js";
import { gemmCalls, gemmScratchBytes } from "../gemm.js";

/** Asks gemm for a drawn product, and gives what C's memory holds then. */
function run(
  runtime: Runtime,
  drawn: RandomGemm,
): { readonly found: Float64Array; readonly expected: Float64Array } {
  const layouts = layOutGemm(drawn);
  const values = valuesFor(drawn);
  return runtime.step(() => {
    const place = (name: "a" | "b" | "c", dtype: FloatName) => {
      const { rowStride, batchStride, offset, extent } = layouts[name];
      const bytes = floatBytes[dtype];
      const whole = put(runtime, encodeFloats(values[name], dtype), name);
      const storage = runtime.view(whole, offset * bytes, extent * bytes);
      return { whole, operand: { storage, rowStride, batchStride, isTransposed: drawn[name].isTransposed } };
    };
    const { dtype, resultDtype, m, n, k, batch, alpha, beta, bias, activation } = drawn;
    const [a, b, c] = [place("a", dtype), place("b", dtype), place("c", resultDtype)];
    const problem: GemmProblem<GemmInputDtype> = {
      ...{ dtype, resultDtype, m, n, k, batch, alpha, beta },
      ...{ a: a.operand, b: b.operand, c: c.operand },
      ...(bias !== "none" && { bias: put(runtime, encodeFloats(values.bias, resultDtype), "bias") }),
      ...(bias !== "none" && { biasBatchStride: biasStepOf(drawn) }),
      ...(activation !== "none" && { activation }),
    };
    const scratchBytes = gemmScratchBytes(runtime, problem);
    submit(
      runtime,
      gemmCalls({
        ...problem,
        ...(scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "scratch") }),
      }),
    );
    return { found: decodeFloats(runtime.read(c.whole), resultDtype), expected: expectedOf(drawn, values) };
  });
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = skip ? undefined! : open();
    const dtypes: readonly FloatName[] = device === "CUDA" ? ["f32", "f64", "f16", "bf16"] : ["f32", "f64"];

    test("a product with bias and activation is right for any shape, layout and batch, and writes nothing beside C", () => {
      fc.assert(
        fc.property(randomGemms(dtypes), (drawn) => {
          // Our own kernels give the operands' dtype only, and so do ops that ask for no other.
          const one = device === "CUDA" ? drawn : { ...drawn, resultDtype: drawn.dtype };
          const { found, expected } = run(runtime, one);
          checkValues(one, found, expected);
        }),
        { numRuns: device === "CUDA" ? 80 : 150 },
      );
    });

    test("a bias that is too short for its batch is rejected with both sizes", () => {
      runtime.step(() => {
        const matrix = (label: string) => {
          const storage = runtime.arena.allocate(2 * 16 * 4, label);
          return { storage, rowStride: 4, batchStride: 16 };
        };
        const problem: GemmProblem = {
          ...{ dtype: "f32", m: 4, n: 4, k: 4, batch: 2, a: matrix("a"), b: matrix("b"), c: matrix("c") },
          ...{ bias: runtime.arena.allocate(28, "bias"), biasBatchStride: 4 },
        };
        assert.throws(() => submit(runtime, gemmCalls(problem)), {
          code: "BAD_ARGUMENT",
          message: /the bias takes 32 bytes, and "bias" has 28/,
        });
      });
    });

    test("C is only said to be overwritten where nothing of its storage is left over", () => {
      const accessOf = (change: { readonly beta?: number; readonly room?: number }): string | undefined =>
        runtime.step(() => {
          const { beta = 0, room = 0 } = change;
          const [a, b] = [put(runtime, new Float32Array(16), "a"), put(runtime, new Float32Array(16), "b")];
          const c = put(runtime, new Float32Array(16 + room), "c");
          const matrix = (storage: Storage) => ({ storage, rowStride: 4 });
          const calls = gemmCalls({
            ...{ dtype: "f32", m: 4, n: 4, k: 4, beta },
            ...{ a: matrix(a), b: matrix(b), c: matrix(c) },
          });
          const [command] = lowerCalls(backendOf(runtime), calls);
          assert.ok(command?.kind === "launch");
          return command.source.parameters[command.arguments.indexOf(c)];
        });
      // Asked twice and in turns: what the first one came to must not be taken for the second.
      for (let turn = 0; turn < 2; turn++) {
        assert.deepEqual(
          [accessOf({}), accessOf({ room: 1 }), accessOf({ beta: 1 }), accessOf({})],
          ["out", "partial-out", "inout", "out"],
        );
      }
    });
  });
}
