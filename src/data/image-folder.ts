/** Images in folders, one folder for each class. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { checkOptions, HoldfastError } from "../errors/index.js";
import { currentSeed } from "../tensor/index.js";
import { withFileError } from "./atomic-write.js";
import { type ImageArray, type ImageOptions, readImage } from "./images/index.js";
import { Dataset, requireIndex } from "./map-dataset.js";
import { randomOf, type SampleContext } from "./sample-context.js";
import type { Transform } from "./transforms.js";

/** Options of an `ImageFolder`. */
export interface ImageFolderOptions extends ImageOptions {
  /** Changes each image after it is read; it must give all images one shape, or they can't be stacked. */
  readonly transform?: Transform;
}

/** An image and the number of its class. */
export type ImageSample = readonly [image: ImageArray, label: number];

/**
 * A data set of images whose class is the name of their folder: `cats/1.png`, `dogs/deep/2.jpg`. Classes are numbered in the order of their names. The
 * mode is "rgb" by default. The random numbers of `transform` depend only on the loader's seed, the epoch and the sample, in any number of
 * worker threads.
 *
 * @example
 * ```ts
 * import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { AsyncDataLoader, device, ImageFolder, transforms } from "holdfast";
 * const root = mkdtempSync(join(tmpdir(), "images-"));
 * const png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==";
 * for (const name of ["cats", "dogs"]) {
 *   mkdirSync(join(root, name));
 *   writeFileSync(join(root, name, "1.png"), Buffer.from(png, "base64"));
 * }
 * const cpu = await device("cpu");
 * const data = new ImageFolder(root, { transform: transforms.compose([transforms.centerCrop(1), transforms.toFloat()]) });
 * for await (const [x, y] of new AsyncDataLoader(data, { batchSize: 2 })) console.log(x.shape, y.tolist()); // → [ 2, 3, 1, 1 ] [ 0, 1 ]
 * cpu.close();
 * ```
 */
export class ImageFolder extends Dataset<ImageSample> {
  /** The names of the classes. */
  readonly classes: readonly string[];
  /** The path and the class of each image. */
  readonly files: readonly { readonly path: string; readonly label: number }[];
  readonly #options: ImageFolderOptions;

  constructor(root: string, options: ImageFolderOptions = {}) {
    checkOptions("ImageFolder", options, { transform: true, mode: true, maxPixels: true });
    super();
    this.#options = options;
    this.classes = entriesOf(root)
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
    this.files = this.classes.flatMap((name, label) =>
      imagesBelow(join(root, name)).map((path) => ({ path, label })),
    );
    const empty = this.classes.find((_, label) => !this.files.some((file) => file.label === label));
    if (this.classes.length > 0 && empty === undefined) return;
    throw new HoldfastError(
      "BAD_FILE",
      empty === undefined
        ? `${root} has no folders. An ImageFolder needs one for each class.`
        : `${join(root, empty)} has no .png, .jpg or .jpeg file. Add images to it, or remove the folder.`,
      { numbers: { path: root } },
    );
  }

  /**
   * The number of images.
   *
   * @example
   * ```ts
   * import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { ImageFolder } from "holdfast";
   * const root = mkdtempSync(join(tmpdir(), "images-"));
   * mkdirSync(join(root, "cats"));
   * const png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==";
   * writeFileSync(join(root, "cats", "1.png"), Buffer.from(png, "base64"));
   * console.log(new ImageFolder(root).length); // → 1
   * ```
   */
  get length(): number {
    return this.files.length;
  }

  /**
   * Reads an image and applies the transform. A loader passes its seed and epoch.
   *
   * @example
   * ```ts
   * import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { ImageFolder } from "holdfast";
   * const root = mkdtempSync(join(tmpdir(), "images-"));
   * mkdirSync(join(root, "cats"));
   * const png = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==";
   * writeFileSync(join(root, "cats", "1.png"), Buffer.from(png, "base64"));
   * const [image, label] = new ImageFolder(root).get(0);
   * console.log(image.shape, label); // → [ 3, 1, 2 ] 0
   * ```
   */
  override get(index: number, context: SampleContext = { seed: currentSeed(), epoch: 0 }): ImageSample {
    requireIndex("ImageFolder", index, this.length);
    const { path = "", label = 0 } = this.files[index] ?? {};
    const { transform, mode = "rgb", ...limits } = this.#options;
    const image = readImage(path, { mode, ...limits });
    return [transform ? transform(image, randomOf(context, index)) : image, label];
  }
}

/** The same order on every machine. */
function imagesBelow(folder: string): readonly string[] {
  return entriesOf(folder).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return imagesBelow(path);
    return /\.(png|jpe?g)$/i.test(entry.name) ? [path] : [];
  });
}

function entriesOf(folder: string) {
  const entries = withFileError(`${folder} can't be read`, folder, () =>
    readdirSync(folder, { withFileTypes: true }),
  );
  return entries.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}
