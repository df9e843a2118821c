/**
 * Makes products together that leave most of a GPU idle one by one: those of a layer's weight gradients, which nobody waits for
 * before the step's end, so that they can wait for each other. In f32 each has the bits that it has alone.
 */

import { gemmTogether } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Node, Order } from "../fuse/order.js";
import { outlineOf } from "../product-times.js";
import { type Call, type ProductCall, partOfAll } from "../program.js";

type Problem = ProductCall["problem"];

/** So many elements for each multiprocessor keep it busy; products that have them need no company. */
const enoughElements = 11_000;

/** How many products one launch makes, and how far in the program a call may move for it: what it reads lives longer. */
const [mostProducts, farthest] = [8, 128];

interface Group {
  readonly problems: Problem[];
  readonly calls: Call[];
}

export function makeProductsTogether(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  const order = new Order();
  const groups = new Map<Node, Group>();
  const isEnough = (problems: readonly Problem[]): boolean => {
    const elements = problems.reduce((sum, { m, n, batch = 1 }) => sum + m * n * batch, 0);
    return elements >= enoughElements * runtime.device.parallelism;
  };
  const isPossible = (problems: readonly Problem[]): boolean =>
    gemmTogether(runtime, problems.map(outlineOf));

  /** Joins the latest group that takes the product. */
  const join = (node: Node, own: Group): boolean => {
    for (const [other, group] of [...groups].reverse()) {
      const problems = [...group.problems, ...own.problems];
      if (problems.length > mostProducts || isEnough(group.problems) || !isPossible(problems)) continue;
      const place = node.position - other.position > farthest ? undefined : order.placeFor(other, node);
      if (place === undefined) continue;
      order.join(other, node, place);
      groups.set(other, { problems, calls: [...group.calls, ...own.calls] });
      return true;
    }
    return false;
  };

  const isSmall = ({ work }: Call): boolean =>
    work.kind === "product" && !isEnough([work.problem]) && isPossible([work.problem]);

  for (const call of letWait(calls, isSmall)) {
    const { node } = order.add(call);
    if (call.work.kind !== "product" || !isSmall(call)) continue;
    const own: Group = { problems: [call.work.problem], calls: [call] };
    if (!join(node, own)) groups.set(node, own);
  }
  return order.nodes.map((node) => {
    const group = groups.get(node);
    return group && group.problems.length > 1 ? callOf(group) : node.call;
  });
}

/** The program with what follows on such calls moved to where it is first needed: it would hold them to their place. */
function letWait(calls: readonly Call[], isSuch: (call: Call) => boolean): readonly Call[] {
  const order = new Order();
  const nodes = calls.map((call) => order.add(call).node);
  for (const node of nodes.toReversed()) {
    if (![...node.before].some(({ call }) => isSuch(call)) || isSuch(node.call)) continue;
    const needed = Math.min(...[...node.behind].map(({ position }) => position));
    if (Number.isFinite(needed)) node.position = needed - 0.5;
  }
  return nodes.sort((a, b) => a.position - b.position).map(({ call }) => call);
}

function callOf({ problems, calls }: Group): Call {
  const op = [...new Set(calls.map((call) => call.op))].join(" + ");
  const plain = problems.map(({ scratch: _, choice: __, ...problem }) => problem);
  return { op, part: partOfAll(calls), work: { kind: "products", problems: plain } };
}
