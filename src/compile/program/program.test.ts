/** The program that passes edit: its order, its uses and its edges after any edits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type Node, Program } from "./program.js";
import { areDisjoint, extentOf } from "./slices.js";

const buffers = [0, 1, 2].map((id): Buffer => ({ id, bytes: 64, label: `buffer ${id}` }));
const slices = fc
  .record({ which: fc.nat(2), offset: fc.nat(7), size: fc.integer({ min: 1, max: 4 }) })
  .map(({ which, offset, size }) => ({ buffer: buffers[which]!, offset: offset * 8, size: size * 8 }));
const anyCall = fc
  .record({ source: slices, target: slices })
  .map((ends): Call => ({ op: "copy", work: { kind: "copy", ...ends } }));

/** True if two calls access a byte that one of them writes. */
function conflict(a: Call, b: Call): boolean {
  return accessesOf(a).some((first) =>
    accessesOf(b).some(
      (second) =>
        (first.writes || second.writes) && !areDisjoint(extentOf(first.slice), extentOf(second.slice)),
    ),
  );
}

test("conflicting calls keep their order, whichever nodes are fused", () => {
  let fusions = 0;
  const numRuns = effort({ quick: 200, thorough: 1000 });
  fc.assert(
    fc.property(
      fc.array(anyCall, { minLength: 2, maxLength: 12 }),
      fc.array(fc.tuple(fc.nat(11), fc.nat(11)), { maxLength: 12 }),
      (calls, pairs) => {
        const program = new Program(calls);
        const { nodes } = program;
        for (const [one, other] of pairs) {
          const [a, b] = [nodes[one]?.root, nodes[other]?.root];
          const anchor = a && b && a !== b ? program.fusionAnchor(a, b) : undefined;
          if (!a || !b || !anchor) continue;
          program.fuse(a, b, anchor);
          fusions++;
        }
        const indices = new Map(program.nodes.map((node, index) => [node, index]));
        for (const [index, call] of calls.entries()) {
          for (let earlier = 0; earlier < index; earlier++) {
            if (!conflict(calls[earlier]!, call)) continue;
            const [first, second] = [nodes[earlier]!.root, nodes[index]!.root];
            assert.ok(indices.get(first)! <= indices.get(second)!, `call ${index} runs before ${earlier}`);
          }
        }
      },
    ),
    { numRuns },
  );
  assert.ok(fusions > numRuns / 10);
});

test("two nodes are not fused if a third one depends on the first and the second on the third", () => {
  const program = new Program([copy("a", x, y), copy("b", y, z), copy("c", z, x)]);
  const [first, , last] = program.nodes as [Node, Node, Node];
  assert.equal(program.fusionAnchor(first, last), undefined);
});

const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });
const copy = (op: string, source: Buffer, target: Buffer): Call => ({
  op,
  work: { kind: "copy", source: whole(source), target: whole(target) },
});
const opsOf = ({ calls }: Program): string => calls.map(({ op }) => op).join(" ");
const [x, y, z] = buffers as [Buffer, Buffer, Buffer];
const w: Buffer = { id: 3, bytes: 64, label: "buffer 3" };

test("moved and inserted calls stand directly before or after their anchors, however many there are", () => {
  const program = new Program([copy("a", x, y), copy("b", y, z), copy("c", x, w)]);
  const [a, b, c] = program.nodes as [Node, Node, Node];
  program.moveAfter(c, undefined);
  assert.equal(opsOf(program), "c a b");
  program.moveBefore(c, b);
  assert.equal(opsOf(program), "a c b");
  const inserted = Array.from({ length: 200 }, (_, index) => index);
  for (const index of inserted) program.insertAfter(a, copy(`after${index}`, x, w));
  for (const index of inserted) program.insertBefore(b, copy(`before${index}`, x, w));
  const expected = [
    ...["a", ...inserted.toReversed().map((index) => `after${index}`)],
    ...["c", ...inserted.map((index) => `before${index}`), "b"],
  ];
  assert.equal(opsOf(program), expected.join(" "));
  const last = program.append(copy("last", x, w));
  assert.equal(program.nodes.at(-1), last);
  const { nodes } = program;
  for (const [index, node] of nodes.entries()) assert.ok(!nodes[index + 1]?.isBefore(node));
});

test("an inserted or replaced call depends on the calls that write its operands", () => {
  const program = new Program([copy("a", x, y), copy("b", y, z)]);
  const [a, b] = program.nodes as [Node, Node];
  const between = program.insertAfter(a, copy("between", y, w));
  assert.deepEqual([...program.producersOf(between)], [a]);
  assert.ok(program.mayReorder(between, b));
  program.replace(between, copy("between", x, y));
  assert.ok(program.producersOf(b).has(between));
  assert.ok(program.consumersOf(a).has(between));
  assert.ok(!program.mayReorder(a, between) && !program.mayReorder(between, b));
});

test("a removed call leaves the order that conflicting neighbours had through it", () => {
  const program = new Program([copy("a", x, y), copy("b", z, y), copy("c", y, w)]);
  const [a, b, c] = program.nodes as [Node, Node, Node];
  assert.ok(!program.producersOf(c).has(a), "the edge goes through b");
  program.remove(b);
  assert.equal(opsOf(program), "a c");
  assert.deepEqual([...program.producersOf(c)], [a]);
});

test("fused nodes run at their anchor, the earlier calls first, until one call replaces them", () => {
  const program = new Program([copy("a", x, y), copy("b", z, w), copy("c", x, y)]);
  const [a, b, c] = program.nodes as [Node, Node, Node];
  program.fuse(c, a, c);
  assert.equal(opsOf(program), "b a c");
  assert.equal(a.root, c);
  assert.deepEqual(program.uses(y).writers, [c]);
  program.replace(c, copy("both", x, y));
  assert.equal(opsOf(program), "b both");
  assert.deepEqual(program.uses(z), { writers: [], readers: [b] });
});

test("a snapshot of the calls stays as it was, and is the same array until the next edit", () => {
  const calls = [copy("a", x, y), copy("b", y, z)];
  const program = new Program(calls);
  assert.equal(program.calls, calls);
  program.replace(program.first!, calls[0]!);
  assert.equal(program.calls, calls, "the same call is no edit");
  program.remove(program.first!);
  const after = program.calls;
  assert.deepEqual([calls.length, after.length], [2, 1]);
  assert.equal(program.calls, after);
});

test("new buffers have ids after those of the program; ids of a phase are not used twice", () => {
  const program = new Program([copy("a", x, w), copy("b", w, z)]);
  const made = program.makeBuffer(8, "new");
  assert.deepEqual([made.id, program.makeBuffer(8, "new").id], [4, 5]);
  program.append(copy("c", w, made));
  program.renumber();
  assert.equal(program.makeBuffer(8, "new").id, 5, "no call uses the last one");
});

/** The nodes that access each byte, in order, and the edges that follow from them. */
function rebuilt(program: Program) {
  const { nodes } = program;
  const uses = new Map<Buffer, { readonly writers: Node[]; readonly readers: Node[] }>();
  const edges = new Set<string>();
  const nameOf = (node: Node): number => nodes.indexOf(node);
  for (const buffer of buffers) {
    const accessing = (wanted: "reads" | "writes"): Node[] =>
      nodes.filter(({ calls }) =>
        calls.some((call) => accessesOf(call).some((one) => one.slice.buffer === buffer && one[wanted])),
      );
    uses.set(buffer, { writers: accessing("writes"), readers: accessing("reads") });
    for (let byte = 0; byte < buffer.bytes + 32; byte += 8) {
      const touches = (node: Node, wanted: "reads" | "writes"): boolean =>
        node.calls.some((call) =>
          accessesOf(call).some(
            ({ slice, ...access }) =>
              access[wanted] &&
              slice.buffer === buffer &&
              slice.offset <= byte &&
              byte < slice.offset + slice.size,
          ),
        );
      let writer: Node | undefined;
      let readers: Node[] = [];
      for (const node of nodes) {
        const [reads, writes] = [touches(node, "reads"), touches(node, "writes")];
        if (writer && (reads || writes)) edges.add(`${nameOf(writer)} → ${nameOf(node)}`);
        if (writes) {
          for (const reader of readers) edges.add(`${nameOf(reader)} → ${nameOf(node)}`);
          [writer, readers] = [node, []];
        } else if (reads) readers.push(node);
      }
    }
  }
  return { uses, edges };
}

function edgesOf(program: Program, direction: "producersOf" | "consumersOf"): Set<string> {
  const { nodes } = program;
  const edges = nodes.flatMap((node, index) =>
    [...program[direction](node)].map((other) =>
      direction === "producersOf"
        ? `${nodes.indexOf(other)} → ${index}`
        : `${index} → ${nodes.indexOf(other)}`,
    ),
  );
  return new Set(edges);
}

const anyEdit = fc.record({
  kind: fc.constantFrom("append", "before", "after", "replace", "remove", "moveBefore", "moveAfter", "fuse"),
  first: fc.nat(15),
  second: fc.nat(15),
  call: anyCall,
  isAsked: fc.boolean(),
});
type Edit = typeof anyEdit extends fc.Arbitrary<infer T> ? T : never;

function edit(program: Program, { kind, first, second, call }: Edit): boolean {
  const { nodes } = program;
  const [a, b] = [nodes[first % nodes.length], nodes[second % nodes.length]];
  if (kind === "append" || !a || !b) program.append(call);
  else if (kind === "before") program.insertBefore(a, call);
  else if (kind === "after") program.insertAfter(a, call);
  else if (kind === "replace") program.replace(a, call);
  else if (kind === "remove") program.remove(a);
  else if (a === b) return false;
  else if (kind === "moveBefore") program.moveBefore(a, b);
  else if (kind === "moveAfter") program.moveAfter(a, b);
  else {
    const anchor = program.fusionAnchor(a, b);
    if (!anchor) return false;
    program.fuse(a, b, anchor);
  }
  return true;
}

test("after any edits, uses and edges are those of a program that is built anew", () => {
  const done = new Map<string, number>();
  fc.assert(
    fc.property(
      fc.array(anyCall, { maxLength: 8 }),
      fc.array(anyEdit, { minLength: 1, maxLength: 12 }),
      (calls, edits) => {
        const program = new Program(calls);
        for (const one of edits) {
          if (edit(program, one)) done.set(one.kind, (done.get(one.kind) ?? 0) + 1);
          // Edges that were computed before an edit must not outlive it.
          if (one.isAsked) edgesOf(program, "producersOf");
          if (one.isAsked) edgesOf(program, "consumersOf");
        }
        const { uses, edges } = rebuilt(program);
        for (const [buffer, expected] of uses) assert.deepEqual(program.uses(buffer), expected);
        assert.deepEqual(edgesOf(program, "producersOf"), edges);
        assert.deepEqual(edgesOf(program, "consumersOf"), edges);
        assert.deepEqual(
          program.calls,
          program.nodes.flatMap((node) => node.calls),
        );
      },
    ),
    { numRuns: effort({ quick: 300, thorough: 1500 }) },
  );
  assert.equal(done.size, 8, "every kind of edit was made");
});
