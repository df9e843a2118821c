/** The dependency graph: whatever is fused, moved, inserted, replaced or removed, conflicting calls keep their order. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DependencyGraph, type Node, rootOf } from "./dependency-graph.js";
import { accessesOf, type Buffer, type Call } from "./program.js";
import { areDisjoint, extentOf } from "./slices.js";

const buffers = [0, 1, 2].map((id): Buffer => ({ id, bytes: 64, label: `buffer ${id}` }));
const slices = fc
  .record({ which: fc.nat(2), offset: fc.nat(7), size: fc.integer({ min: 1, max: 4 }) })
  .map(({ which, offset, size }) => ({ buffer: buffers[which]!, offset: offset * 8, size: size * 8 }));
const calls = fc
  .record({ source: slices, target: slices })
  .map((ends): Call => ({ op: "copy", work: { kind: "copy", ...ends } }));

/** True if two calls access a byte that one of them writes. */
function conflict(a: Call, b: Call): boolean {
  return accessesOf(a).some((one) =>
    accessesOf(b).some(
      (other) => (one.writes || other.writes) && !areDisjoint(extentOf(one.slice), extentOf(other.slice)),
    ),
  );
}

test("conflicting calls keep their order, whichever nodes are fused", () => {
  let joined = 0;
  fc.assert(
    fc.property(
      fc.array(calls, { minLength: 2, maxLength: 12 }),
      fc.array(fc.tuple(fc.nat(11), fc.nat(11)), { maxLength: 12 }),
      (program, pairs) => {
        const order = new DependencyGraph();
        const nodes = program.map((call) => order.add(call).node);
        for (const [one, other] of pairs) {
          const [a, b] = [nodes[one], nodes[other]].map((node) => node && rootOf(node)) as [Node?, Node?];
          if (!a || !b || a === b) continue;
          const place = order.fusionPosition(a, b);
          if (place === undefined) continue;
          order.fuse(a, b, place);
          joined++;
        }
        const places = new Map(order.nodes.map((node, index) => [node, index]));
        for (const [index, call] of program.entries()) {
          for (let earlier = 0; earlier < index; earlier++) {
            if (!conflict(program[earlier]!, call)) continue;
            const [first, second] = [rootOf(nodes[earlier]!), rootOf(nodes[index]!)];
            assert.ok(places.get(first)! <= places.get(second)!, `call ${index} runs before ${earlier}`);
          }
        }
      },
    ),
    { numRuns: 1000 },
  );
  assert.ok(joined > 100);
});

test("two nodes are not fused if a third one depends on the first and the second on the third", () => {
  const [a, b, c] = buffers.map((buffer) => ({ buffer, offset: 0, size: 64 })) as [Part, Part, Part];
  const order = new DependencyGraph();
  const copy = (source: Part, target: Part): Node =>
    order.add({ op: "copy", work: { kind: "copy", source, target } }).node;
  const first = copy(a, b);
  copy(b, c);
  const last = copy(c, a);
  assert.equal(order.fusionPosition(first, last), undefined);
});

type Part = ReturnType<typeof accessesOf>[number]["slice"];

type Slice = (typeof buffers)[number];
const whole = (buffer: Slice) => ({ buffer, offset: 0, size: buffer.bytes });
const copyCall = (op: string, source: Buffer, target: Buffer): Call => ({
  op,
  work: { kind: "copy", source: whole(source), target: whole(target) },
});
const opsOf = ({ calls: ordered }: DependencyGraph): string => ordered.map(({ op }) => op).join(" ");
const [x, y, z] = buffers as [Buffer, Buffer, Buffer];
const w: Buffer = { id: 3, bytes: 64, label: "buffer 3" };

test("moved and inserted calls stand directly before or after their anchors, however many there are", () => {
  const graph = new DependencyGraph([copyCall("a", x, y), copyCall("b", y, z), copyCall("c", x, w)]);
  const [a, b, c] = graph.nodes as [Node, Node, Node];
  graph.moveAfter(c, undefined);
  assert.equal(opsOf(graph), "c a b");
  graph.moveBefore(c, b);
  assert.equal(opsOf(graph), "a c b");
  const inserted = Array.from({ length: 200 }, (_, index) => index);
  for (const index of inserted) graph.insertAfter(a, copyCall(`after${index}`, x, w));
  for (const index of inserted) graph.insertBefore(b, copyCall(`before${index}`, x, w));
  const expected = [
    ...["a", ...inserted.toReversed().map((index) => `after${index}`)],
    ...["c", ...inserted.map((index) => `before${index}`), "b"],
  ];
  assert.equal(opsOf(graph), expected.join(" "));
  assert.equal(graph.add(copyCall("last", x, w)).node, graph.nodes.at(-1));
});

test("an inserted or replaced call depends on what it accesses", () => {
  const graph = new DependencyGraph([copyCall("a", x, y), copyCall("b", y, z)]);
  const [a, b] = graph.nodes as [Node, Node];
  const between = graph.insertAfter(a, copyCall("between", y, w));
  assert.deepEqual([...graph.producersOf(between)], [a]);
  assert.ok(graph.mayReorder(between, b));
  graph.replace(between, copyCall("between", x, y));
  assert.ok(graph.producersOf(b).has(between));
  assert.ok(graph.consumersOf(a).has(between));
  assert.ok(!graph.mayReorder(a, between) && !graph.mayReorder(between, b));
});

test("a removed call leaves the order that conflicting neighbours had through it", () => {
  const graph = new DependencyGraph([copyCall("a", x, y), copyCall("b", z, y), copyCall("c", y, w)]);
  const [a, b, c] = graph.nodes as [Node, Node, Node];
  assert.ok(!graph.producersOf(c).has(a), "the edge goes through b");
  graph.remove(b);
  assert.equal(opsOf(graph), "a c");
  assert.deepEqual([...graph.producersOf(c)], [a]);
});
