/** data/images: PNG and JPEG images as arrays on the host. */

export { decodeImage, type ImageOptions, readImage } from "./decode-image.js";
export type { ImageArray, ImageMode } from "./image-array.js";
