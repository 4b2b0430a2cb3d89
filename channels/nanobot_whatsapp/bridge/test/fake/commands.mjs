/**
 * The fake by remote control: what a JSON line may ask for. README.md lists them for people.
 *
 * Each command gets the fake and the line's fields, and returns the fields of the answer.
 */

export const COMMANDS = {
  person: (fake, { key, number, lid, name }) => {
    fake.people.add({ key, number, lid, name })
  },
  group: (fake, { group, subject, members, addressing }) => {
    fake.people.addGroup({ id: group, subject, members, addressing })
  },
  seed: (fake, { folder }) => {
    fake.seed(folder)
  },
  scan: (fake, { qr }) => {
    fake.scan(qr)
  },
  enter_code: (fake, { code }) => fake.enterCode(code),
  say: async (fake, { message, ...told }) => ({
    message: await fake.say({ ...told, id: message }),
  }),
  acks: (fake, { mode, code, times }) => {
    fake.delivery.set({ mode, code, times })
  },
  release: (fake) => {
    fake.delivery.release()
  },
  ask_again: (fake, { who, chat, message, device }) => fake.askAgain(who, chat, message, device),
  forget: (fake, { who }) => {
    fake.people.get(who).forget()
  },
  cut: (fake) => {
    fake.cut()
  },
  stream_error: (fake, { code }) => {
    fake.streamError(code)
  },
  refuse_logins: (fake, { reasons }) => {
    fake.refuseLogins(reasons)
  },
  media_fail: (fake, { statuses }) => {
    fake.media.fail(statuses)
  },
  expire_media: (fake) => {
    fake.media.expireAll()
  },
  stanza: (fake, { node }) => {
    fake.send(node)
  },
  until: async (fake, { event, where = {}, seconds }) => ({
    found: await fake.until(event, (found) => matches(found, where), seconds),
  }),
  mailbox: (fake) => ({ messages: fake.desk.mailbox.ids }),
  events: (fake) => ({ events: fake.events }),
  violations: (fake) => ({ violations: fake.violations }),
}

function matches(event, where) {
  return Object.entries(where).every(([key, value]) => same(event[key], value))
}

function same(found, wanted) {
  return JSON.stringify(found) === JSON.stringify(wanted)
}
