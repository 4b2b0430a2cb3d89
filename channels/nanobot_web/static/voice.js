// Voice input: the words of a recording are inserted in the text field, to be checked and sent.

const RATE = 16000, MOST = 300; // samples a second, and seconds

/** Record until a button or Esc is pressed. `page` is what app.js offers. */
export async function record({ $, at, send, toast }) {
  const text = at("text"), panel = at("recording"), timer = $("[role=timer]", panel), done = $("[data-finish]", panel);
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => null);
  if (!stream) { toast("Your browser doesn't allow the microphone here."); return; }
  const recorder = new MediaRecorder(stream), pieces = [], begun = Date.now();
  let discarded = false;

  const count = () => {
    const seconds = Math.floor((Date.now() - begun) / 1000);
    timer.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    if (seconds >= MOST) finish();
  };
  const finish = () => { if (recorder.state === "recording") recorder.stop(); };
  const close = () => {
    panel.hidden = true;
    document.removeEventListener("keydown", escape, true);
    text.focus();
  };
  const discard = () => { discarded = true; finish(); close(); };
  const escape = (event) => { if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); discard(); } };

  recorder.ondataavailable = (event) => pieces.push(event.data);
  recorder.onstop = async () => {
    clearInterval(clock);
    for (const track of stream.getTracks()) track.stop();
    if (discarded) return;
    done.hidden = true;
    timer.textContent = "Transcribing";
    const body = new FormData();
    const found = await toWave(new Blob(pieces)).then((sound) => {
      body.append("files", sound, "recording.wav");
      return send("/chat/transcribe", body);
    }, () => { toast("Nothing was recorded."); });
    if (discarded) return;
    close();
    if (found && !found.text) toast("No speech was recognized.");
    else if (found) insert(text, found.text);
  };
  $("[data-discard]", panel).onclick = discard;
  done.onclick = finish;
  document.addEventListener("keydown", escape, true);
  recorder.start();
  const clock = setInterval(count, 500);
  count();
  done.hidden = panel.hidden = false;
  done.focus();
}

function insert(text, words) {
  const start = text.selectionStart, gap = /\S$/.test(text.value.slice(0, start)) ? " " : "";
  text.setRangeText(gap + words, start, text.selectionEnd, "end");
  text.dispatchEvent(new Event("input"));
}

/** Convert a recording to WAV, which all transcribers read. */
async function toWave(recording) {
  const decoder = new OfflineAudioContext(1, 1, RATE);
  const samples = (await decoder.decodeAudioData(await recording.arrayBuffer())).getChannelData(0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length)), write = (at, text) => [...text].forEach((one, index) => view.setUint8(at + index, one.charCodeAt()));
  write(0, "RIFF"); view.setUint32(4, 36 + 2 * samples.length, true); write(8, "WAVEfmt ");
  for (const [at, value] of [[16, 16], [24, RATE], [28, 2 * RATE], [40, 2 * samples.length]]) view.setUint32(at, value, true);
  for (const [at, value] of [[20, 1], [22, 1], [32, 2], [34, 16]]) view.setUint16(at, value, true);
  write(36, "data");
  samples.forEach((one, index) => view.setInt16(44 + 2 * index, 32767 * Math.max(-1, Math.min(1, one)), true));
  return new Blob([view], { type: "audio/wav" });
}
