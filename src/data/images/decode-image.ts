/** Reads PNG and JPEG images. Files are untrusted input. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { readRegularFile } from "../../files/index.js";
import { MiB } from "../../units/index.js";
import { withFileError } from "../atomic-write.js";
import { badImage, type ImageArray, type ImageMode, toPlanes } from "./image-array.js";
import { decodeJpeg, isJpeg } from "./jpeg.js";
import { decodePng, isPng } from "./png.js";

/** Options of `readImage` and `decodeImage`. */
export interface ImageOptions {
  /** The channels. Default: "unchanged", those of the file. */
  readonly mode?: ImageMode;
  /** The maximum number of pixels, because a small file can hold a very large image. Default: 2²⁵, about 33 million. */
  readonly maxPixels?: number;
}

const imageOptionNames: OptionNames<ImageOptions> = { mode: true, maxPixels: true };

const maxFileBytes = 512 * MiB;

/**
 * Decodes a PNG or JPEG image to bytes [channels, height, width]. Pass it to `fromTyped` for a tensor, or to `transforms`. The orientation
 * in a photo's metadata is ignored.
 *
 * @example
 * ```ts
 * import { decodeImage } from "holdfast";
 * const png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==";
 * const { values, shape } = decodeImage(Buffer.from(png, "base64"));
 * console.log(values, shape); // → Uint8Array(6) [ 255, 0, 0, 0, 0, 255 ] [ 3, 1, 2 ]
 * ```
 */
export function decodeImage(
  bytes: Uint8Array,
  options: ImageOptions = {},
): ImageArray<Uint8Array<ArrayBuffer>> {
  const { mode = "unchanged", maxPixels = 2 ** 25 } = checkOptions("decodeImage", options, imageOptionNames);
  if (!(maxPixels >= 1)) {
    throw new HoldfastError("BAD_ARGUMENT", `decodeImage: maxPixels is ${maxPixels}; it must be 1 or more.`);
  }
  if (isPng(bytes)) return toPlanes(decodePng(bytes, maxPixels), mode);
  if (isJpeg(bytes)) return toPlanes(decodeJpeg(bytes, maxPixels), mode);
  throw badImage("it is neither PNG nor JPEG");
}

/**
 * Reads a PNG or JPEG file, as `decodeImage` does.
 *
 * @example
 * ```ts
 * import { mkdtempSync, writeFileSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { readImage } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "images-")), "dot.png");
 * const png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==";
 * writeFileSync(path, Buffer.from(png, "base64"));
 * console.log(readImage(path, { mode: "gray" }).values); // → Uint8Array(2) [ 76, 29 ]
 * ```
 */
export function readImage(path: string, options: ImageOptions = {}): ImageArray<Uint8Array<ArrayBuffer>> {
  checkOptions("readImage", options, imageOptionNames);
  const bytes = withFileError(`${path} can't be read`, path, () => readRegularFile(path, maxFileBytes));
  try {
    return decodeImage(bytes, options);
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== "BAD_FILE") throw error;
    throw new HoldfastError("BAD_FILE", `${path}: ${error.message}`, {
      numbers: { ...error.numbers, path },
      cause: error,
    });
  }
}
