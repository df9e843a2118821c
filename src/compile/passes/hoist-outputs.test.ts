/** Results that need less than the others of their kernel: which are made apart, where, and that nothing late joins them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { type Expression, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { fuse as fuseIn } from "../fusion/vertical/fuse.js";
import { accessesOf, type Buffer, type BufferSlice, type Call } from "../program/program.js";
import { hoistOutputs as hoistOutputsIn } from "./hoist-outputs.js";

const hoistOutputs = onCalls(hoistOutputsIn);
const fuse = onCalls(fuseIn);

/** All that the pass asks of a runtime. */
const on = (kind: "cuda" | "cpu"): Runtime => ({ device: { kind, parallelism: 132 } }) as unknown as Runtime;

let buffers = 0;
const bufferOf = (label: string, floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const persistent = { span: { address: 4096, size: 4 * 3072 } } as unknown as Storage;

const load = (input: number): Expression => term.load(input, "f32");

/** An elementwise call that stores a value in each of its outputs. */
function each(op: string, inputs: readonly Buffer[], outputs: readonly [Buffer, Expression][]): Call {
  const length = (outputs[0]?.[0].bytes ?? 0) / 4;
  const kernel: RowKernel = {
    ...{ name: op, inputs: inputs.map(() => "f32" as const), scalars: [] },
    outputs: outputs.map(() => ({ dtype: "f32", per: "element" })),
    stages: outputs.map(([, value], output) => ({ kind: "store", output, value })),
  };
  const operands = [...inputs, ...outputs.map(([buffer]) => buffer)];
  const iteration = iterateElements(
    [length],
    operands.map(() => [1]),
  );
  return { op, work: { kind: "row", kernel, iteration, operands: operands.map(whole), scalars: [] } };
}

interface Options {
  /** How many calls stand between the step's input and the loss. */
  readonly layers?: number;
  readonly rows?: number;
  /** Are the counts there before the step, and behind it? */
  readonly keepsCounts?: boolean;
}

/** A model, labels that are picked behind it, a loss with a count of each row, and who reads the counts. */
function step({ layers = 6, rows = 3072, keepsCounts = false }: Options = {}): readonly Call[] {
  const make = (label: string): Buffer => bufferOf(label, rows);
  const model: Call[] = [];
  let last = make("input");
  for (let layer = 0; layer < layers; layer++) {
    const next = make(`layer ${layer}`);
    model.push(each("layer", [last], [[next, term.exp(load(0))]]));
    last = next;
  }
  const [table, labels, losses, counts, scaled] = [
    make("table"),
    make("labels"),
    make("losses"),
    keepsCounts ? { ...make("counts"), storage: persistent } : make("counts"),
    make("scaled"),
  ];
  return [
    ...model,
    each("pick", [table], [[labels, term.neg(load(0))]]),
    each(
      "loss",
      [last, labels],
      [
        [losses, term.mul(load(0), load(1))],
        [counts, term.abs(load(1))],
      ],
    ),
    each("scale", [losses, counts], [[scaled, term.div(load(0), load(1))]]),
  ];
}

const opsOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);
const writtenBy = (call: Call | undefined): string[] =>
  call ? accessesOf(call).flatMap(({ slice, writes }) => (writes ? slice.buffer.label : [])) : [];

test("a result that waits for little is made before the rest, with what leads to it", () => {
  const calls = hoistOutputs(on("cuda"), step());
  assert.deepEqual(opsOf(calls), ["pick", "loss", ...Array(6).fill("layer"), "loss", "scale"]);
  assert.deepEqual(writtenBy(calls[1]), ["counts"]);
  assert.deepEqual(writtenBy(calls[8]), ["losses"]);
  assert.deepEqual(
    calls.map(({ isHoisted: isApart = false }) => isApart),
    [true, true, ...Array(8).fill(false)],
  );
  const [, early] = calls;
  assert.deepEqual(
    early && accessesOf(early).flatMap(({ slice, reads }) => (reads ? slice.buffer.label : [])),
    ["labels"],
  );
});

test("fusion leaves it apart: only what leads to it joins it", () => {
  const isRead = ({ label }: Buffer): boolean => ["losses", "counts", "labels", "scaled"].includes(label);
  const plain = fuse(on("cuda"), step(), { isRead });
  assert.ok(plain.every((call) => writtenBy(call).includes("counts") === writtenBy(call).includes("losses")));
  const calls = fuse(on("cuda"), hoistOutputs(on("cuda"), step()), { isRead });
  const made = calls.find((call) => writtenBy(call).includes("counts"));
  assert.deepEqual(writtenBy(made).sort(), ["counts", "labels"]);
  assert.equal(made?.isHoisted, true);
});

test("it stays where nobody would wait less, or where it is much", () => {
  const isUnchanged = (calls: readonly Call[]): boolean => hoistOutputs(on("cuda"), calls) === calls;
  assert.ok(!isUnchanged(step({ layers: 5 })));
  assert.ok(isUnchanged(step({ layers: 4 })));
  assert.ok(!isUnchanged(step({ rows: 65_536 })));
  assert.ok(isUnchanged(step({ rows: 65_537 })));
});

test("a result that others keep, or that is made again, is not touched", () => {
  const calls = step();
  const recomputed = calls.map((call) => (call.op === "loss" ? { ...call, isRematerialized: true } : call));
  assert.equal(hoistOutputs(on("cuda"), recomputed), recomputed);
  const keeping = step({ keepsCounts: true });
  assert.equal(hoistOutputs(on("cuda"), keeping), keeping);
});

test("a CPU has nothing that could run meanwhile", () => {
  const calls = step();
  assert.equal(hoistOutputs(on("cpu"), calls), calls);
});
