/** Ownership of files and folders. Cached files affect training, so only this user may have written them. */

/** True if this user owns the file and no other user may write it. False if the system has no owners. */
export function isPrivate({ uid, mode }: { readonly uid: number; readonly mode: number }): boolean {
  return uid === process.getuid?.() && (mode & 0o022) === 0;
}
