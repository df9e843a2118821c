/** files: opens and reads regular files within limits, for files that other programs may have written; finds files of the package. */

export { isPrivate } from "./ownership.js";
export { packagePath } from "./package-path.js";
export { packageVersion } from "./package-version.js";
export {
  type OpenedFile,
  openRegularFile,
  readRegularFile,
  readSpan,
  readTail,
} from "./regular-files.js";
