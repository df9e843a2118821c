/** GEMMs with bias and activation, by a library and by native kernels: the results agree. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../../test/support/effort.js";
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

/** Runs a random GEMM, and returns the contents of C's memory. */
function run(
  runtime: Runtime,
  randomGemm: RandomGemm,
): { readonly actual: Float64Array; readonly expected: Float64Array } {
  const layouts = layOutGemm(randomGemm);
  const values = valuesFor(randomGemm);
  return runtime.step(() => {
    const upload = (name: "a" | "b" | "c", dtype: FloatName) => {
      const { rowStride, batchStride, offset, extent } = layouts[name];
      const bytes = floatBytes[dtype];
      const whole = put(runtime, encodeFloats(values[name], dtype), name);
      const storage = runtime.view(whole, offset * bytes, extent * bytes);
      return {
        whole,
        operand: { storage, rowStride, batchStride, isTransposed: randomGemm[name].isTransposed },
      };
    };
    const { dtype, resultDtype, m, n, k, batch, alpha, beta, bias, activation } = randomGemm;
    const [a, b, c] = [upload("a", dtype), upload("b", dtype), upload("c", resultDtype)];
    const problem: GemmProblem<GemmInputDtype> = {
      ...{ dtype, resultDtype, m, n, k, batch, alpha, beta },
      ...{ a: a.operand, b: b.operand, c: c.operand },
      ...(bias !== "none" && { bias: put(runtime, encodeFloats(values.bias, resultDtype), "bias") }),
      ...(bias !== "none" && { biasBatchStride: biasStepOf(randomGemm) }),
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
    return {
      actual: decodeFloats(runtime.read(c.whole), resultDtype),
      expected: expectedOf(randomGemm, values),
    };
  });
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = skip ? undefined! : open();
    const dtypes: readonly FloatName[] = device === "CUDA" ? ["f32", "f64", "f16", "bf16"] : ["f32", "f64"];

    test("a GEMM with bias and activation is correct for every shape, layout and batch, and writes nothing but C", () => {
      fc.assert(
        fc.property(randomGemms(dtypes), (randomGemm) => {
          // Our own kernels give the operands' dtype only, and so do ops that ask for no other.
          const gemm = device === "CUDA" ? randomGemm : { ...randomGemm, resultDtype: randomGemm.dtype };
          const { actual, expected } = run(runtime, gemm);
          checkValues(gemm, actual, expected);
        }),
        {
          numRuns:
            device === "CUDA" ? effort({ quick: 20, thorough: 80 }) : effort({ quick: 30, thorough: 150 }),
        },
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

    test('C has access "out" only if all of its storage is written', () => {
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
