/** Images as arrays on the host, and their channels. */

import { HoldfastError } from "../../errors/index.js";

/** An image as an array [channels, height, width]: bytes as in a file, or float32 after `transforms.toFloat`. */
export interface ImageArray<Values extends Uint8Array | Float32Array = Uint8Array | Float32Array> {
  readonly values: Values;
  readonly shape: readonly [channels: number, height: number, width: number];
}

/** The channels of a decoded image: those of the file, or these. */
export type ImageMode = "unchanged" | "gray" | "rgb" | "rgba";

/** An image with interleaved channels, as decoders give it: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha. */
export interface Pixels {
  readonly data: Uint8Array;
  readonly width: number;
  readonly height: number;
  readonly channels: number;
}

/** Alpha is dropped, or 255 if the file has none. Gray is the luma of ITU-R 601, as in Pillow. */
export function toPlanes(
  { data, width, height, channels }: Pixels,
  mode: ImageMode,
): ImageArray<Uint8Array<ArrayBuffer>> {
  const to = channelsOf(mode, channels);
  const size = width * height;
  const values = new Uint8Array(to * size);
  const isColor = channels >= 3;
  const isLuma = isColor && to === 1;
  for (let pixel = 0, at = 0; pixel < size; pixel++, at += channels) {
    const red = data[at] ?? 0;
    const green = isColor ? (data[at + 1] ?? 0) : red;
    const blue = isColor ? (data[at + 2] ?? 0) : red;
    const alpha = channels % 2 === 0 ? (data[at + channels - 1] ?? 0) : 255;
    values[pixel] = isLuma ? (red * 19_595 + green * 38_470 + blue * 7471 + 0x8000) >> 16 : red;
    if (to >= 3) {
      values[size + pixel] = green;
      values[2 * size + pixel] = blue;
    }
    if (to % 2 === 0) values[(to - 1) * size + pixel] = alpha;
  }
  return { values, shape: [to, height, width] };
}

const channelsByMode = { gray: 1, rgb: 3, rgba: 4 } as const;

function channelsOf(mode: ImageMode, channels: number): number {
  if (mode === "unchanged") return channels;
  const count: number | undefined = channelsByMode[mode];
  if (count !== undefined) return count;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `The mode of an image is ${JSON.stringify(mode)}; it must be "unchanged", "gray", "rgb" or "rgba".`,
  );
}

export function badImage(why: string): HoldfastError {
  return new HoldfastError("BAD_FILE", `This is no image that can be read: ${why}.`);
}

/** Rejects an image before memory is used for it. */
export function requireSize(width: number, height: number, maxPixels: number): void {
  if (width === 0 || height === 0) throw badImage(`it has ${width} × ${height} pixels`);
  if (width * height <= maxPixels) return;
  throw new HoldfastError(
    "BAD_FILE",
    `The image has ${width} × ${height} pixels, more than ${maxPixels}. If it is valid, raise maxPixels, or make it smaller.`,
    { numbers: { width, height, maxPixels } },
  );
}
