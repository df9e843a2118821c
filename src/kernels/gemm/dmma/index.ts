/** wide: f32 products of our own on a GPU, summed as doubles by its tensor cores. */

export { dmmaGemmsOf, lowerDmmaGemms } from "./launch.js";
