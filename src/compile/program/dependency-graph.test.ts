/** The order of calls, held to the conflicts between them while nodes are joined at random. */

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

/** Do two calls meet some byte that one of them writes? */
function conflict(a: Call, b: Call): boolean {
  return accessesOf(a).some((one) =>
    accessesOf(b).some(
      (other) => (one.writes || other.writes) && !areDisjoint(extentOf(one.slice), extentOf(other.slice)),
    ),
  );
}

test("calls that meet the same bytes keep their order, whichever nodes became one", () => {
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

test("nodes with a third one between them that needs the first and is needed by the second don't become one", () => {
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
