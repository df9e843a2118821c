/** Every entry of the op table: its ONNX nodes give its result, or the export rejects it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Tensor, zeros } from "holdfast";
import { connecting, type Family, families, rejections, translations } from "../src/onnx/translate/table.js";
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
  const comparison = { name, model, feeds: [feeds], options: { dynamicAxes: {} } } as const;
  const { nodes } = await compareExport(cpu, folder, comparison, engines);
  for (const { opCase } of calls) {
    const types = seen.get(opCase.op.name) ?? new Set();
    for (const { type } of nodes) types.add(type);
    seen.set(opCase.op.name, types);
  }
}

/** The operators that each op was exported as, if it was alone in its file. */
const seen = new Map<string, Set<string>>();

test("the families of docs/onnx.md name the operators that their ops become", () => {
  if (size > 1) return;
  const { elementwise, ...others } = families;
  const around = new Set<string>([...connecting, ...(elementwise?.nodes ?? [])]);
  const typesOf = ({ translations: ops }: Family): readonly string[] => {
    const types = Object.keys(ops).flatMap((name) => [...(seen.get(name) ?? [])]);
    return [...new Set(types)].sort();
  };
  const isConnecting = (type: string): boolean => (connecting as readonly string[]).includes(type);
  assert.deepEqual(
    elementwise && typesOf(elementwise).filter((type) => !isConnecting(type)),
    elementwise?.nodes,
  );
  for (const [name, family] of Object.entries(others))
    assert.deepEqual(
      typesOf(family).filter((type) => !around.has(type)),
      family.nodes,
      name,
    );
});

test("every entry of the op table has a translation, consists of others, or is rejected with a reason", () => {
  for (const { name, kind } of Object.values(opTable)) {
    const ways = [translations.has(name), rejections.has(name)].filter(Boolean).length;
    assert.ok(ways === 1 || (ways === 0 && kind === "composite"), `${name} has ${ways} rows`);
  }
});
