/** Chains of calls that wait for each other: two calls as one must make none longer than the longest. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import { CriticalPath } from "./critical-path.js";
import { DependencyGraph, dependsDirectly, type Node } from "./dependency-graph.js";

const order = new DependencyGraph();
const follow = (from: View): { readonly node: Node; readonly made: View } => {
  const made = bufferOf([4]);
  return { node: order.add(elementwise("neg", (value) => term.neg(value!), [from], made)).node, made };
};

/** a → b → c → d, and e → f beside them. */
const [first, other] = [bufferOf([4]), bufferOf([4])];
const a = follow(first);
const b = follow(a.made);
const c = follow(b.made);
const d = follow(c.made);
const e = follow(other);
const f = follow(e.made);

test("calls of two chains can be one as long as what follows on both fits behind it", () => {
  const chains = new CriticalPath(order.nodes);
  const canBeOne = [a, b, c, d].map(({ node }) => !chains.wouldExtend(node, e.node));
  assert.deepEqual(canBeOne, [true, true, true, false], "behind the last there is no place for another");
  assert.ok(!chains.wouldExtend(d.node, f.node));
  assert.ok(chains.wouldExtend(a.node, f.node), "which waits for one that would stand before all");
});

test("with two as one, chains go through both", () => {
  const joined = new DependencyGraph();
  const nodes = order.nodes.map(({ call }) => joined.add(call).node);
  const [, , third, fourth, fifth, sixth] = nodes as [Node, Node, Node, Node, Node, Node];
  joined.fuse(third, fifth, third.position);
  const chains = new CriticalPath(joined.nodes);
  assert.ok(!chains.wouldExtend(fourth, sixth));
  assert.ok(chains.wouldExtend(third, sixth), "the sixth stands behind the third now");
});

test("what is noted of two that become one is what looking at all of them anew would find", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(), fc.nat()), { minLength: 2, maxLength: 24 }),
      fc.array(fc.nat()),
      (drawn, picks) => {
        const program = new DependencyGraph();
        const made: View[] = [bufferOf([4])];
        for (const [one, other] of drawn) {
          const target = bufferOf([4]);
          const sources = [made[one % made.length]!, made[other % made.length]!];
          program.add(elementwise("add", (x, y) => term.add(x!, y!), sources, target));
          made.push(target);
        }
        const chains = new CriticalPath(program.nodes);
        for (const pick of picks) {
          const { nodes } = program;
          const [first, second] = [nodes[pick % nodes.length]!, nodes[(pick >> 4) % nodes.length]!];
          const place = first === second ? undefined : program.fusionPosition(first, second);
          // Two of which one waits for the other don't run as one.
          const isChain = dependsDirectly(first, second) || dependsDirectly(second, first);
          if (place === undefined || isChain || chains.wouldExtend(first, second)) continue;
          program.fuse(first, second, place);
          chains.fuse(first, second);
        }
        const afresh = new CriticalPath(program.nodes);
        for (const one of program.nodes)
          for (const other of program.nodes)
            assert.equal(chains.wouldExtend(one, other), afresh.wouldExtend(one, other));
      },
    ),
    { numRuns: 200 },
  );
});
