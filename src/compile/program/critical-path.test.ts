/** Chains of dependent calls: a fusion must make none longer than the longest. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import { CriticalPath } from "./critical-path.js";
import { type Node, Program } from "./program.js";

const program = new Program();
const follow = (from: View): { readonly node: Node; readonly made: View } => {
  const made = bufferOf([4]);
  return { node: program.append(elementwise("neg", (value) => term.neg(value!), [from], made)), made };
};

/** a → b → c → d, and the independent chain e → f. */
const [first, other] = [bufferOf([4]), bufferOf([4])];
const a = follow(first);
const b = follow(a.made);
const c = follow(b.made);
const d = follow(c.made);
const e = follow(other);
const f = follow(e.made);

test("calls of two chains can be fused if the rest of both chains fits after them", () => {
  const path = new CriticalPath(program);
  const canFuse = [a, b, c, d].map(({ node }) => !path.wouldExtend(node, e.node));
  assert.deepEqual(canFuse, [true, true, true, false], "after the last call there is no room for f");
  assert.ok(!path.wouldExtend(d.node, f.node));
  assert.ok(path.wouldExtend(a.node, f.node), "f depends on e, which would run before all others");
});

test("after a fusion, chains go through both calls", () => {
  const fused = new Program(program.calls);
  const [, , third, fourth, fifth, sixth] = fused.nodes as [Node, Node, Node, Node, Node, Node];
  fused.fuse(third, fifth, third);
  const path = new CriticalPath(fused);
  assert.ok(!path.wouldExtend(fourth, sixth));
  assert.ok(path.wouldExtend(third, sixth), "the sixth call depends on the third now");
});

test("lengths that follow fusions are those of a new critical path", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(), fc.nat()), { minLength: 2, maxLength: 24 }),
      fc.array(fc.nat()),
      (operands, picks) => {
        const random = new Program();
        const made: View[] = [bufferOf([4])];
        for (const [left, right] of operands) {
          const target = bufferOf([4]);
          const sources = [made[left % made.length]!, made[right % made.length]!];
          random.append(elementwise("add", (x, y) => term.add(x!, y!), sources, target));
          made.push(target);
        }
        const path = new CriticalPath(random);
        for (const pick of picks) {
          const { nodes } = random;
          const [first, second] = [nodes[pick % nodes.length]!, nodes[(pick >> 4) % nodes.length]!];
          const anchor = first === second ? undefined : random.fusionAnchor(first, second);
          // Dependent calls cannot run concurrently.
          const isChain = random.producersOf(first).has(second) || random.producersOf(second).has(first);
          if (!anchor || isChain || path.wouldExtend(first, second)) continue;
          random.fuse(first, second, anchor);
          path.fuse(first, second);
        }
        const anew = new CriticalPath(random);
        for (const one of random.nodes)
          for (const other of random.nodes)
            assert.equal(path.wouldExtend(one, other), anew.wouldExtend(one, other));
      },
    ),
    { numRuns: effort({ quick: 50, thorough: 200 }) },
  );
});
