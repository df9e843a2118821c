/**
 * Views of gradients. The gradient of a view is the same view of its operand's gradient, so a gradient that arrives at a view can be
 * written to its place at once: through a chain of views, into the gradient of the array that they are views of.
 */

import { contiguousStrides, type Shape, type StridedView, sizeOf } from "../ops/index.js";
import { type Box, boxOfView } from "./box.js";
import { type Leaf, Node } from "./node.js";

/** A part of the gradient of `target`. */
export interface Region {
  readonly target: Node | Leaf;
  /** The shape of the target's gradient. */
  readonly shape: Shape;
  /** A view of the target's gradient if that is contiguous. */
  readonly view: StridedView;
  /** The same elements. */
  readonly box: Box;
}

export class ViewRegions {
  readonly #regions = new Map<Node, Region | undefined>();
  readonly #expected = new Map<Node | Leaf, Box[]>();

  /**
   * `nodes`: those of a backward pass, which starts at `roots`. `isWhole`: true for nodes that need their whole gradient, with that of
   * all views of them.
   */
  constructor(roots: readonly Node[], nodes: readonly Node[], isWhole: (node: Node) => boolean) {
    for (const node of nodes) if (node.op.kind === "view") this.#regions.set(node, findRegion(node, isWhole));
    /** The nodes that gradients arrive at. */
    const receivers = new Set<Node>(roots);
    for (const node of nodes) if (isWhole(node)) receivers.add(node);
    for (const node of nodes) {
      if (this.of(node)) continue;
      for (const edge of node.edges) if (edge && "source" in edge) receivers.add(edge.source.node);
    }
    for (const receiver of receivers) {
      const region = this.of(receiver);
      if (!region) continue;
      const { target, box } = region;
      // A chain of views can end at a view, whose gradient then goes on to its own target.
      if (target instanceof Node) receivers.add(target);
      const boxes = this.#expected.get(target) ?? [];
      boxes.push(box);
      this.#expected.set(target, boxes);
    }
  }

  /** The region that the gradients of a node belong to; undefined if the node needs its own gradient as a whole. */
  of(node: Node): Region | undefined {
    return this.#regions.get(node);
  }

  /** The regions of a target that gradients will arrive at, unless a gradient rule leaves one out. */
  expected(target: Node | Leaf): readonly Box[] {
    return this.#expected.get(target) ?? [];
  }
}

/** The region of the first array of a chain of views; undefined if the chain has all of its elements. */
function findRegion(node: Node, isWhole: (node: Node) => boolean): Region | undefined {
  const chain: Node[] = [];
  let region: Region | undefined;
  for (let viewNode = node; viewNode.op.kind === "view"; ) {
    const [edge] = viewNode.edges;
    chain.unshift(viewNode);
    const shape = viewNode.operandTypes[0]?.shape ?? [];
    const view = viewThrough(chain, shape);
    const box = view && boxOfView(shape, view);
    if (!edge || !box || hasRepeats(viewNode, shape)) break;
    // Outputs after the first have no regions.
    if ("source" in edge && edge.source.output > 0) break;
    const target = "leaf" in edge ? edge.leaf : edge.source.node;
    region = { target, shape, view, box };
    if (target instanceof Node && isWhole(target)) break;
    if ("leaf" in edge) break;
    viewNode = edge.source.node;
  }
  return region && sizeOf(region.view.shape) < sizeOf(region.shape) ? region : undefined;
}

/** True if a view has elements more than once. Later views of it may have each of them once. */
function hasRepeats(node: Node, shape: Shape): boolean {
  const view = viewThrough([node], shape);
  return view !== undefined && boxOfView(shape, view) === undefined;
}

/** The view of a contiguous array through a chain of view ops; undefined if one of them would need a copy. */
function viewThrough(chain: readonly Node[], shape: Shape): StridedView | undefined {
  let view: StridedView = { shape, strides: contiguousStrides(shape), offset: 0 };
  for (const { op, attributes } of chain) {
    const next = op.kind === "view" ? op.view(view, attributes) : undefined;
    if (!next) return undefined;
    view = {
      shape: next.shape,
      strides: next.strides,
      offset: (view.offset ?? 0) + (next.offset ?? 0),
    };
  }
  return view;
}
