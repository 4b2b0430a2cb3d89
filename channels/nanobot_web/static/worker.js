// Of the installed app: it shows a page while nanobot is not reachable. It stores nothing else.

const FILES = ["/static/offline.html", "/static/style.css"];

self.addEventListener("install", (event) => event.waitUntil(caches.open("offline").then((cache) => cache.addAll(FILES))));
self.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  const file = method === "GET" && mode === "navigate" ? FILES[0] : FILES.find((one) => url === location.origin + one);
  if (file) event.respondWith(fetch(event.request).catch(() => caches.match(file)));
});
