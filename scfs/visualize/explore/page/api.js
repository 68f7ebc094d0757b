// Requests to the server. Every failure is an Error with one sentence.

async function answer(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is scfs explore still running?");
  }
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new Error(content?.detail ?? `The server answered ${response.status}.`);
  return content;
}

export const readSession = () => answer("api/session");
export const readTitles = (first, count) => answer(`api/images?first=${first}&count=${count}`);
export const readPhoto = (photo) => answer(`api/images/${photo}`);
export const pixels = (photo, size) => `api/images/${photo}/${size}`;
export const addPhoto = (file) => answer("api/photos", { method: "POST", body: file });

/** Images of an answer, with their maps as {width, height, values} by layer. */
export async function search(query, signal) {
  const headers = { "Content-Type": "application/json" };
  const found = await answer("api/search", { method: "POST", headers, body: JSON.stringify(query), signal });
  for (const image of found.images) {
    for (const [layer, text] of Object.entries(image.maps)) {
      const [height, width] = found.shapes[layer];
      image.maps[layer] = { width, height, values: floats(text) };
    }
  }
  return found.images;
}

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer); // little endian, whatever this machine is
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}
