/** Values made anew: the same numbers come out, and who read the old ones need not have ended. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, storing, type View } from "../../../test/support/row-calls.js";
import { runProgram } from "../../../test/support/run-program.js";
import { withRuntime, writeF32 } from "../../../test/support/runtimes.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { term } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { accessesOf, type Buffer, type Call } from "../program/program.js";
import { renameBuffers as renameBuffersIn } from "./rename-buffers.js";

const renameBuffers = (calls: readonly Call[]): readonly Call[] => rewritten(calls, renameBuffersIn);

const add = (a: View, b: View, to: View): Call => elementwise("add", (x, y) => term.add(x!, y!), [a, b], to);
const double = (a: View, to: View): Call => elementwise("double", (x) => term.add(x!, x!), [a], to);
/** The second value is made of the first one's operand again, which it may have changed. */
const twice = (a: View, to: View, next: View): Call =>
  storing("twice", [(x) => term.add(x!, 1), (x) => term.add(x!, 10)], [a], [to, next]);

const writtenBy = (call: Call): Buffer[] =>
  accessesOf(call).flatMap(({ slice, writes }) => (writes ? [slice.buffer] : []));
const readBy = (call: Call): Buffer[] =>
  accessesOf(call).flatMap(({ slice, reads }) => (reads ? [slice.buffer] : []));

/** The first elements of a view. */
function startOf({ slice, ...view }: View, elements: number): View {
  return { ...view, slice: { ...slice, size: 4 * elements }, shape: [elements] };
}

test("a sum in place over a value that was read is made elsewhere, and later readers find it there", () => {
  const [x, g, read, last] = [4096, undefined, undefined, undefined].map((address) =>
    bufferOf([8], address === undefined ? {} : { address }),
  ) as [View, View, View, View];
  const program = [double(x, g), double(g, read), add(g, x, g), double(g, last)];
  const fresh = renameBuffers(program);
  const [made] = writtenBy(fresh[2]!);
  assert.ok(made !== g.slice.buffer && made?.bytes === g.slice.buffer.bytes);
  assert.ok(program.every((call) => accessesOf(call).every(({ slice }) => slice.buffer.id !== made.id)));
  assert.deepEqual(readBy(fresh[2]!), [g.slice.buffer, x.slice.buffer]);
  assert.deepEqual(readBy(fresh[3]!), [made]);
});

test("what nobody has read, what is persistent, what is changed in part or read once more in the same call stays", () => {
  const [x, kept] = [bufferOf([8], { address: 4096 }), bufferOf([8], { address: 8192 })];
  const [a, b] = [bufferOf([8]), bufferOf([8])];
  for (const program of [
    [double(x, a), add(a, x, a)],
    [double(kept, a), add(kept, x, kept)],
    [double(x, a), double(a, b), double(startOf(a, 4), startOf(a, 4))],
    [double(x, a), double(a, b), twice(a, a, b)],
  ])
    assert.deepEqual(renameBuffers(program), program);
});

const drawn = fc.array(
  fc.record({
    kind: fc.constantFrom("add", "add", "double", "start", "twice"),
    of: fc.tuple(fc.nat(3), fc.nat(3), fc.nat(3)),
  }),
  { maxLength: 12 },
);

test("any program leaves what it left before", () => {
  let made = 0;
  const numRuns = effort({ quick: 50, thorough: 200 });
  withRuntime({}, ({ runtime }) => {
    fc.assert(
      fc.property(drawn, (calls) => {
        const views = [0, 1, 2, 3].map(() => bufferOf([8]));
        const x = bufferOf([8], { address: 4096 });
        const kept = views.map((_, index) => bufferOf([8], { address: 8192 + 256 * index }));
        const program = [
          double(x, views[0]!),
          ...[1, 2, 3].map((index) => add(x, views[index - 1]!, views[index]!)),
          ...calls.map(({ kind, of }) => {
            const [a, b, c] = of.map((index) => views[index]!) as [View, View, View];
            if (kind === "add") return add(a, b, c);
            if (kind === "double") return double(a, b);
            if (kind === "start") return double(startOf(a, 4), startOf(b, 4));
            return twice(a, b, b === c ? kept[0]! : c);
          }),
          ...views.map((view, index) => double(view, kept[index]!)),
        ];
        const fresh = renameBuffers(program);
        made += new Set(fresh.flatMap(writtenBy)).size - new Set(program.flatMap(writtenBy)).size;
        const results = [program, fresh].map((one) => run(runtime, one, x.slice.buffer, kept));
        for (const [index, result] of results[1]!.entries())
          sameBytes(result, results[0]![index]!, `buffer ${index}`);
      }),
      { numRuns },
    );
  });
  assert.ok(made > numRuns / 2, `${made} values were made anew`);
});

function run(
  runtime: Runtime,
  program: readonly Call[],
  x: Buffer,
  kept: readonly View[],
): readonly Uint8Array[] {
  return runtime.step(() => {
    const buffers = new Set(program.flatMap((call) => accessesOf(call).map(({ slice }) => slice.buffer)));
    const storages = new Map<Buffer, Storage>();
    for (const buffer of [...buffers, x]) {
      if (!storages.has(buffer)) storages.set(buffer, runtime.arena.allocate(buffer.bytes, buffer.label));
    }
    writeF32(runtime, storages.get(x)!, [1, -2, 3, 5, 8, 13, 21, 34]);
    runProgram(runtime, program, storages);
    return kept.map(({ slice }) => runtime.read(storages.get(slice.buffer)!));
  });
}
