/** Every entry of the op table: its ONNX nodes give its result, or the export rejects it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Tensor, zeros } from "holdfast";
import { rejections, translations } from "../src/onnx/translate/table.js";
import { opTable } from "../src/ops/index.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { compareExport, type Engine, interpreter } from "./support/onnx/compare.js";
import { findOnnxRuntime } from "./support/onnx/runtime.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases } from "./support/op-cases/index.js";
import { type CaseCall, nameOf, type OpCase } from "./support/op-cases/op-case.js";
import { callOp, uploadOperand } from "./support/op-runs.js";

const cpu = openDevice({ threads: 1 });
const folder = makeFolder();
const { elements, count, size } = effort({
  quick: { elements: 12, count: 1, size: 40 },
  thorough: { elements: 24, count: 6, size: 1 },
});
// Thousands of sessions are too many for every run.
const runtime = effort<() => Engine | undefined>({ quick: () => undefined, thorough: findOnnxRuntime })();
const engines = [interpreter, ...(runtime ? [runtime] : [])];

const exportable = opCases.filter(({ op }) => !rejections.has(op.name));
const groups = Array.from({ length: Math.ceil(exportable.length / size) }, (_, index) =>
  exportable.slice(index * size, (index + 1) * size),
);

for (const group of groups) {
  const [first, last] = [group[0]!, group.at(-1)!].map(nameOf);
  const what = group.length === 1 ? first : `${first} to ${last}`;
  test(`ONNX nodes give the results of ${what}`, async () => {
    const calls = group.flatMap((opCase) =>
      drawCalls(opCase, { elements, seed: 7, count }).flatMap((call) =>
        isEmpty(call) ? [] : [{ opCase, call }],
      ),
    );
    for (let from = 0; from < calls.length; from += size)
      await compareCalls(`${what} ${from}`, calls.slice(from, from + size));
  });
}

function isEmpty({ operands }: CaseCall): boolean {
  return operands.some((operand) => typeof operand === "object" && operand.values.length === 0);
}

/** Exports a model that makes all calls, with their operands as inputs. */
async function compareCalls(
  name: string,
  calls: readonly { readonly opCase: OpCase; readonly call: CaseCall }[],
): Promise<void> {
  // A call without tensors needs an input too.
  const feeds: Record<string, Tensor> = { unused: zeros([1]) };
  const uploaded = calls.map(({ call: { operands } }, index) =>
    operands.map((operand, at) => {
      if (typeof operand !== "object") return undefined;
      const tensor = uploadOperand(cpu, { ...operand, layout: "contiguous" }, "f32");
      feeds[`x${index}_${at}`] = tensor.tensor.clone();
      return tensor;
    }),
  );
  const model = (_: Tensor, ...tensors: Tensor[]): unknown => {
    const given = tensors.values();
    return Object.fromEntries(
      calls.map(({ opCase, call: { operands, attributes } }, index) => {
        const passed = uploaded[index]!.map(
          (operand) => operand && { ...operand, tensor: given.next().value! },
        );
        return [`${nameOf(opCase)} ${index}`, [...callOp(cpu, opCase.op, operands, passed, attributes)]];
      }),
    );
  };
  await compareExport(cpu, folder, { name, model, feeds: [feeds], options: { dynamicAxes: {} } }, engines);
}

test("every entry of the op table has a translation, consists of others, or is rejected with a reason", () => {
  for (const { name, kind } of Object.values(opTable)) {
    const ways = [translations.has(name), rejections.has(name)].filter(Boolean).length;
    assert.ok(ways === 1 || (ways === 0 && kind === "composite"), `${name} has ${ways} rows`);
  }
});
