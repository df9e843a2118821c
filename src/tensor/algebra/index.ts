/** algebra: sums of products, distances and block matrices, composed of the ops of the table. */

export { blockDiag } from "./block-diag.js";
export { diagonalView } from "./diagonal-view.js";
export { cdist, type DistanceOptions, normOf, pdist } from "./distances.js";
export { einsum, tensordot } from "./einsum.js";
