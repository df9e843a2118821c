/**
 * JPEG images, baseline and progressive. jpeg-js decodes them. It has limits of its own but accepts files that are cut off, so the structure
 * of a file is checked first.
 */

import { createRequire } from "node:module";
import type * as JpegJs from "jpeg-js";
import { MiB } from "../../units/index.js";
import { badImage, type Pixels, requireSize } from "./image-array.js";

/** Every scan visits the whole image, even if it has a few bytes. Encoders write about ten. */
const maxScans = 100;

/** jpeg-js keeps 32-bit coefficients and the samples of up to three channels. */
const bytesPerPixel = 32;

export function isJpeg(bytes: Uint8Array): boolean {
  return bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff;
}

export function decodeJpeg(bytes: Uint8Array, maxPixels: number): Pixels {
  const frame = checkStructure(bytes);
  requireSize(frame.width, frame.height, maxPixels);
  if (frame.channels !== 1 && frame.channels !== 3)
    throw badImage(`the JPEG has ${frame.channels} channels; save it as RGB or gray`);
  // Loaded at first use.
  const { decode } = createRequire(import.meta.url)("jpeg-js") as typeof JpegJs;
  try {
    const { width, height, data } = decode(bytes, {
      useTArray: true,
      formatAsRGBA: false,
      // In one channel, jpeg-js takes restart intervals beyond the last block for an error.
      tolerantDecoding: frame.channels === 1,
      maxResolutionInMP: maxPixels / 1e6,
      maxMemoryUsageInMB: 16 + (bytesPerPixel * maxPixels) / MiB,
    });
    if (frame.channels === 3) return { data, width, height, channels: 3 };
    return { data: data.filter((_, index) => index % 3 === 0), width, height, channels: 1 };
  } catch (error) {
    // It throws any error for a wrong byte.
    throw badImage(`the JPEG is damaged (${String(error).slice(0, 100)})`);
  }
}

interface Frame {
  readonly width: number;
  readonly height: number;
  readonly channels: number;
}

/** Checks the segments from the first to the last. */
function checkStructure(bytes: Uint8Array): Frame {
  let frame: Frame | undefined;
  let scans = 0;
  for (let at = 2; ; ) {
    while (bytes[at] === 0xff && bytes[at + 1] === 0xff) at++;
    const [start, marker = 0] = [bytes[at], bytes[at + 1]];
    if (at + 2 > bytes.length) throw badImage("the JPEG is cut off");
    if (start !== 0xff) throw badImage(`the JPEG has no marker at byte ${at}`);
    at += 2;
    if (marker === 0xd9) break;
    const length = ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
    if (length < 2 || at + length > bytes.length) throw badImage("the JPEG is cut off");
    if (marker >= 0xc0 && marker <= 0xc2) {
      if (frame) throw badImage("the JPEG has more than one frame");
      frame = readFrame(bytes.subarray(at + 2, at + length));
    } else if (!isKnown(marker)) {
      throw badImage(`the JPEG has a segment of the kind ${marker.toString(16)}, which is not supported`);
    }
    at += length;
    if (marker !== 0xda) continue;
    if (!frame || ++scans > maxScans)
      throw badImage(`the JPEG has ${frame ? `more than ${maxScans} scans` : "a scan before its frame"}`);
    // Coded data ends at a marker other than a stuffed byte or a restart.
    while (at < bytes.length && !(bytes[at] === 0xff && isMarkerAfterScan(bytes[at + 1] ?? 0))) at++;
  }
  if (!frame || scans === 0) throw badImage("the JPEG has no image");
  return frame;
}

function readFrame(data: Uint8Array): Frame {
  const [precision, heightHigh = 0, heightLow = 0, widthHigh = 0, widthLow = 0, channels = 0] = data;
  if (precision !== 8) throw badImage(`the JPEG has ${precision} bits per sample; 8 are supported`);
  if (data.length !== 6 + 3 * channels) throw badImage("the JPEG's frame has a wrong length");
  for (let channel = 0; channel < channels; channel++) {
    const sampling = data[7 + 3 * channel] ?? 0;
    const [across, down] = [sampling >> 4, sampling & 15];
    if (across < 1 || across > 4 || down < 1 || down > 4)
      throw badImage(`the JPEG has the sampling factors ${across} × ${down}`);
  }
  return { width: (widthHigh << 8) | widthLow, height: (heightHigh << 8) | heightLow, channels };
}

/** Tables, scans, restart intervals, application data and comments. */
function isKnown(marker: number): boolean {
  return [0xc4, 0xda, 0xdb, 0xdd, 0xfe].includes(marker) || (marker >= 0xe0 && marker <= 0xef);
}

function isMarkerAfterScan(marker: number): boolean {
  return marker !== 0 && !(marker >= 0xd0 && marker <= 0xd7);
}
