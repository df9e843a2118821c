/** Row kernels that don't wait for each other are one launch on a GPU, where one of them is small and nobody waits longer for it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import {
  bytesOf,
  callsOf,
  type RandomProgram,
  randomPrograms,
  valuesOf,
} from "../../../test/support/random-program.js";
import { onCalls } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { runProgram } from "../../../test/support/run-program.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { iterateRows, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type Call, mapSlices, Program } from "../program/program.js";
import { kernelOf, shapeOf } from "../report/call-table.js";
import { fuseHorizontally as fuseHorizontallyIn } from "./combo-kernels.js";

const fuseHorizontally = onCalls(fuseHorizontallyIn);

/** All that the pass asks of a runtime. */
const on = (kind: "cuda" | "cpu", parallelism = 132): Runtime =>
  ({ device: { kind, parallelism } }) as unknown as Runtime;

const hopper = on("cuda");
const mib = 2 ** 18;

type Made = Call & { readonly result: View };

/** So many floats of another, negated. */
function negate(source: View, result = bufferOf(source.shape)): Made {
  return { ...elementwise("neg", (value) => term.neg(value!), [source], result), result };
}

const sumKernel: RowKernel = {
  ...{ name: "sum", inputs: ["f32"], outputs: [{ dtype: "f32", per: "row" }], scalars: [] },
  stages: [
    { kind: "reduce", op: "add", value: term.load(0, "f32") },
    { kind: "store", output: 0, value: term.reduced(0, "f32") },
  ],
};

function sum(source: View, rows: number, columns: number): Made {
  const result = bufferOf([rows]);
  const strides = [
    [columns, 1],
    [1, 0],
  ];
  const iteration = iterateRows([rows, columns], strides, 1);
  const operands = [source.slice, result.slice];
  return { op: "sum", work: { kind: "row", kernel: sumKernel, iteration, operands, scalars: [] }, result };
}

/** What is no kernel of rows. */
function copy(source: View): Made {
  const result = bufferOf(source.shape);
  return { op: "copy", work: { kind: "copy", source: source.slice, target: result.slice }, result };
}

let address = 0;
/** Persistent memory, each in a place of its own. */
const weights = (floats: number): View => {
  address += 2 ** 28;
  return bufferOf([floats], { address });
};

/** The ops of each call, those of one launch side by side. */
const launchesOf = (calls: readonly Call[]): string[] =>
  calls.map(({ op, work }) => (work.kind === "combo" ? `${work.rows.length}: ${op}` : op));

test("what only needs weights is made with the earliest that leaves the device idle, and named after both", () => {
  const [input, weight] = [bufferOf([mib / 4]), weights(mib)];
  const first = sum(input, 8, 100);
  const product = copy(first.result);
  const conversion = negate(weight);
  const last = copy(conversion.result);
  const calls = fuseHorizontally(hopper, [first, product, conversion, last]);
  assert.deepEqual(launchesOf(calls), ["2: sum + neg", "copy", "copy"]);
  const [joined] = calls;
  assert.deepEqual(
    accessesOf(joined!).map(({ slice, reads, writes }) => [slice.buffer, reads, writes]),
    [first, conversion].flatMap(({ work, result }) => [
      [work.kind === "row" && work.operands[0]!.buffer, true, false],
      [result.slice.buffer, false, true],
    ]),
  );
  assert.equal(kernelOf(joined!.work), "sum + neg");
  assert.equal(shapeOf(joined!.work), "8×100, 1×262144");
});

test("its parts are found and replaced, each in its place", () => {
  const [one, other] = [bufferOf([8]), bufferOf([16])];
  const [call] = fuseHorizontally(hopper, [negate(one), negate(other)]);
  const moved = bufferOf([8]);
  const work = mapSlices(call!.work, (slice) => (slice === one.slice ? moved.slice : slice));
  const read = accessesOf({ ...call!, work }).filter(({ reads }) => reads);
  assert.deepEqual(
    read.map(({ slice }) => slice.buffer),
    [moved.slice.buffer, other.slice.buffer],
  );
});

test("what nobody waits for is made later, with what it does not wait for", () => {
  const [input, other] = [bufferOf([64]), bufferOf([64])];
  const early = negate(input);
  const made = copy(other);
  const late = negate(made.result);
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, [early, made, late])), ["copy", "2: neg"]);
});

test("nobody is made to wait longer: of chains as long as the longest, calls of one place alone become one", () => {
  const [one, other] = [negate(bufferOf([64])), copy(bufferOf([64]))];
  const [behindOne, behindOther] = [copy(one.result), negate(other.result)];
  const program = [one, other, behindOther, behindOne];
  assert.deepEqual(
    fuseHorizontally(hopper, program),
    program,
    "though the first could stand before the third",
  );
  const longer = copy(behindOther.result);
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, [...program, longer])), [
    "copy",
    "2: neg",
    "copy",
    "copy",
  ]);
});

test("one that reads another's result stays behind it, and one whose operand is written in between before that", () => {
  const input = bufferOf([64]);
  const first = negate(input);
  const needing = negate(first.result);
  assert.deepEqual(fuseHorizontally(hopper, [first, needing]), [first, needing]);
  const overwriting: Call = { op: "fill", work: { kind: "fill", target: input.slice, byte: 0 } };
  const apart = [negate(input), overwriting, negate(input)];
  assert.deepEqual(fuseHorizontally(hopper, apart), apart);
});

test("two large ones stay apart; a small one goes with a large one, unless it holds a long row", () => {
  const large = (): Made => negate(weights(9 * mib), weights(9 * mib));
  const [one, two] = [large(), large()];
  assert.deepEqual(fuseHorizontally(hopper, [one, two]), [one, two]);
  assert.deepEqual(fuseHorizontally(on("cuda", 200), [large(), large()]).length, 1, "of a larger device");
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, [large(), sum(weights(256), 1, 256)])), [
    "2: neg + sum",
  ]);
  const long = [large(), sum(weights(3072), 1, 3072)];
  assert.deepEqual(fuseHorizontally(hopper, long), long);
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, [sum(weights(3072), 1, 3072), negate(weights(64))])), [
    "2: sum + neg",
  ]);
});

test("of several it goes with the one that moves least", () => {
  const first = negate(weights(2 * mib));
  const { slice } = first.result;
  const pieceOf = (floats: number): View => ({
    ...first.result,
    ...{ slice: { ...slice, size: 4 * floats }, shape: [floats], strides: [1] },
  });
  // The second reads what the first has made, and the third stores over that.
  const chain = [first, sum(pieceOf(64), 1, 64), negate(weights(mib), pieceOf(mib))];
  const free = negate(weights(64), weights(64));
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, chain)), ["neg", "sum", "neg"]);
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, [...chain, free])), ["neg", "2: sum + neg", "neg"]);
});

test("a launch that moves much already takes a small call, and a lone one a larger call", () => {
  const launchesWith = (floats: number): string[] => {
    const [one, two] = [negate(bufferOf([2.25 * mib])), negate(weights(2.25 * mib), weights(2.25 * mib))];
    // It reads what the first has made.
    const lone = sum({ ...one.result, shape: [64], strides: [1] }, 1, 64);
    return launchesOf(fuseHorizontally(hopper, [one, two, lone, negate(weights(floats), weights(floats))]));
  };
  assert.deepEqual(launchesWith(mib), ["3: neg", "sum"]);
  assert.deepEqual(launchesWith(2.5 * mib), ["2: neg", "2: sum + neg"]);
});

test("what reduces many rows, what is no kernel of rows, and what is made again stay alone", () => {
  const many = [sum(weights(3072 * 256), 3072, 256), negate(weights(64))];
  assert.deepEqual(fuseHorizontally(hopper, many), many);
  const copies = [copy(weights(64)), negate(weights(64)), copy(weights(64))];
  assert.deepEqual(fuseHorizontally(hopper, copies), copies);
  const again = [{ ...negate(weights(64)), isRematerialized: true }, negate(weights(64))];
  assert.deepEqual(fuseHorizontally(hopper, again), again);
  const long = [sum(weights(9000), 1, 9000), negate(weights(64))];
  assert.deepEqual(fuseHorizontally(hopper, long), long, "of larger blocks");
});

test("what would be held much longer stays where it is", () => {
  const program = (floats: number): Call[] => {
    const first = sum(weights(64), 1, 64);
    const conversion = negate(weights(floats));
    return [first, copy(first.result), conversion, copy(conversion.result)];
  };
  assert.equal(fuseHorizontally(hopper, program(mib)).length, 3);
  assert.equal(fuseHorizontally(hopper, program(mib + 1)).length, 3);
  assert.equal(fuseHorizontally(hopper, program(4 * mib)).length, 3);
  assert.equal(fuseHorizontally(hopper, program(4 * mib + 1)).length, 4);
});

test("no more than eight become one, nor calls that stand far apart", () => {
  const many = Array.from({ length: 11 }, () => negate(weights(64)));
  assert.deepEqual(launchesOf(fuseHorizontally(hopper, many)), ["8: neg", "3: neg"]);
  const far = (between: number): Call[] => [
    negate(weights(64)),
    ...Array.from({ length: between }, () => copy(bufferOf([4]))),
    negate(weights(64)),
  ];
  assert.equal(fuseHorizontally(hopper, far(127)).length, 128);
  assert.equal(fuseHorizontally(hopper, far(128)).length, 130);
});

test("on the CPU nothing changes", () => {
  const calls = [negate(weights(64)), negate(weights(64))];
  assert.equal(fuseHorizontally(on("cpu"), calls), calls);
});

/** A drawn program over storages, or without any. */
function programOf(program: RandomProgram, buffers: readonly Buffer[] = buffersOf(program)): readonly Call[] {
  return callsOf(program, buffers);
}

const buffersOf = ({ buffers, sizes }: RandomProgram): Buffer[] =>
  buffers.map((one, id) => ({ id, bytes: bytesOf(one, sizes), label: `buffer ${id}` }));

const longestOf = (calls: readonly Call[]): number => {
  const program = new Program(calls);
  const lengths = new Map<object, number>();
  for (const node of program.nodes) {
    const producers = [...program.producersOf(node)];
    lengths.set(node, 1 + Math.max(0, ...producers.map((producer) => lengths.get(producer) ?? 0)));
  }
  return Math.max(0, ...lengths.values());
};

test("in any program kernels of one launch don't meet what others of them write, and no chain is longer than before", () => {
  let joined = 0;
  fc.assert(
    fc.property(randomPrograms, (drawn) => {
      const program = programOf(drawn);
      const made = fuseHorizontally(hopper, program);
      joined += program.length - made.length;
      assert.ok(longestOf(made) <= longestOf(program));
      for (const { work } of made) {
        if (work.kind !== "combo") continue;
        const members = new Program(work.rows.map((row): Call => ({ op: "", work: row })));
        for (const node of members.nodes) assert.equal(members.producersOf(node).size, 0);
      }
    }),
    { numRuns: effort({ quick: 60, thorough: 300 }) },
  );
  assert.ok(joined > 0, "some became one");
});

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("programs leave the same bytes, whoever waits for whom", () => {
    let joined = 0;
    const compare = (drawn: RandomProgram): void =>
      runtime.step(() => {
        const values = drawn.buffers.map((one, index) => valuesOf(one, drawn.sizes, index));
        const storages = values.map((own, index) => put(runtime, own, `buffer ${index}`));
        const buffers = buffersOf(drawn);
        const places = new Map(buffers.map((buffer, index) => [buffer, storages[index]!]));
        const program = programOf(drawn, buffers);
        const made = fuseHorizontally(runtime, program);
        joined += program.length - made.length;
        const read = (): Uint8Array[] => storages.map((storage) => runtime.read(storage));
        runProgram(runtime, program, places);
        const expected = read();
        runtime.upload(values.map((source, index) => ({ source, target: storages[index]! })));
        runProgram(runtime, made, places);
        for (const [index, bytes] of read().entries()) sameBytes(bytes, expected[index]!, `buffer ${index}`);
      });
    const examples = fc.sample(randomPrograms, { seed: 3, numRuns: 4 }).map((one): [RandomProgram] => [one]);
    fc.assert(fc.property(randomPrograms, compare), { numRuns: 4 + examples.length, examples });
    assert.ok(joined > 0, "some became one");
  });
});
