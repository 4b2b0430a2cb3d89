"""A sample of every kind of message, and the expected result."""

from __future__ import annotations

from nanobot.bus.events import Media
from tests.channels.telegram.update_samples import ANN, BOB, GROUP, SENT, message

FILE = {"file_id": "f1", "file_unique_id": "u1", "file_size": 900}
SIZED = FILE | {"width": 90, "height": 90}
CLIP = SIZED | {"duration": 3}
STICKER = SIZED | {"type": "regular", "is_animated": False, "is_video": False, "emoji": "🙂"}
SMALL = SIZED | {"file_id": "small", "width": 10, "height": 10}
BERLIN = {"latitude": 52.52, "longitude": 13.4}
IMAGE = Media("f1", "image", "image/jpeg", "", 900)
CHECKLIST = {
    "title": "Shop",
    "tasks": [{"id": 1, "text": "milk"}, {"id": 2, "text": "tea", "completed_by_user": ANN}],
}
OPTION = {"voter_count": 0, "persistent_id": "p"}
POLL = {
    "id": "1",
    "question": "Tea?",
    "options": [OPTION | {"text": "yes"}, OPTION | {"text": "no"}],
    "total_voter_count": 0,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
    "allows_revoting": False,
    "members_only": False,
}
GAME = {"title": "Chess", "description": "a game", "photo": [SIZED]}
INVOICE = {
    "title": "Tea",
    "description": "a pot",
    "start_parameter": "s",
    "currency": "EUR",
    "total_amount": 300,
}
RICH = {"blocks": [{"type": "paragraph", "text": ["so ", {"type": "bold", "text": "rich"}]}]}

FILES: dict[str, tuple[object, Media]] = {
    "animation": (CLIP, Media("f1", "video", "video/mp4", "", 900)),
    "audio": (
        FILE | {"duration": 3, "performer": "Ann", "title": "Tea", "mime_type": "audio/mpeg"},
        Media("f1", "audio", "audio/mpeg", "Ann - Tea", 900),
    ),
    "document": (
        FILE | {"file_name": "a.pdf", "mime_type": "application/pdf"},
        Media("f1", "document", "application/pdf", "a.pdf", 900),
    ),
    "live_photo": (CLIP | {"photo": [SMALL, SIZED], "file_id": "moves"}, IMAGE),
    "photo": ([SMALL, SIZED], IMAGE),
    "video": (
        CLIP | {"file_name": "v.mov", "mime_type": "video/quicktime"},
        Media("f1", "video", "video/quicktime", "v.mov", 900),
    ),
    "video_note": (
        FILE | {"length": 90, "duration": 3},
        Media("f1", "video", "video/mp4", "", 900),
    ),
    "voice": (FILE | {"duration": 3}, Media("f1", "voice", "audio/ogg", "", 900)),
}
"""Kinds that are only a file."""

WORDS: dict[str, tuple[object, str]] = {
    "text": ("hello", "hello"),
    "rich_message": (RICH, "so rich"),
}
"""Kinds that are text."""

NOTES: dict[str, tuple[object, str]] = {
    "sticker": (STICKER, "sticker 🙂"),
    "paid_media": ({"star_count": 5, "paid_media": [{"type": "preview"}]}, "paid media: 5 stars"),
    "story": ({"chat": GROUP, "id": 3}, "story"),
    "checklist": (CHECKLIST, "checklist: Shop (to do: milk; done: tea)"),
    "contact": ({"phone_number": "+49 1", "first_name": "Bo"}, "contact: Bo, +49 1"),
    "dice": ({"emoji": "🎲", "value": 4}, "dice: 🎲 4"),
    "game": (GAME, "game: Chess"),
    "poll": (POLL, "poll: Tea? (yes / no)"),
    "venue": (
        {"location": BERLIN, "title": "Café", "address": "Street 1"},
        "venue: Café, Street 1, 52.52, 13.4",
    ),
    "location": (BERLIN, "location: 52.52, 13.4"),
    "invoice": (INVOICE, "invoice: Tea"),
    "giveaway": (
        {"chats": [GROUP], "winners_selection_date": SENT, "winner_count": 1},
        "giveaway",
    ),
    "giveaway_winners": (
        {
            "chat": GROUP,
            "giveaway_message_id": 2,
            "winners_selection_date": SENT,
            "winner_count": 1,
            "winners": [BOB],
        },
        "giveaway winners",
    ),
}
"""Kinds that become a note next to the text."""

GIFT = {"gift": {"id": "g", "sticker": STICKER, "star_count": 1}}
RARE = {"name": "M", "rarity_per_mille": 1}
COLORS = {"center_color": 1, "edge_color": 2, "symbol_color": 3, "text_color": 4}
UNIQUE = {
    "base_name": "Star",
    "name": "Star-1",
    "number": 1,
    "gift_id": "g",
    "model": RARE | {"sticker": STICKER},
    "symbol": RARE | {"sticker": STICKER},
    "backdrop": RARE | {"colors": COLORS},
}
PAYMENT = {
    "currency": "XTR",
    "total_amount": 1,
    "invoice_payload": "p",
    "telegram_payment_charge_id": "t",
    "provider_payment_charge_id": "r",
}
IGNORED: dict[str, object] = {
    "new_chat_members": [BOB],
    "left_chat_member": BOB,
    "chat_owner_left": {},
    "chat_owner_changed": {"new_owner": BOB},
    "new_chat_title": "Garden",
    "new_chat_photo": [SIZED],
    "delete_chat_photo": True,
    "group_chat_created": True,
    "supergroup_chat_created": True,
    "channel_chat_created": True,
    "message_auto_delete_timer_changed": {"message_auto_delete_time": 60},
    "pinned_message": message(text="old"),
    "successful_payment": PAYMENT,
    "refunded_payment": PAYMENT,
    "users_shared": {"request_id": 1, "users": [{"user_id": 8}]},
    "chat_shared": {"request_id": 1, "chat_id": -55},
    "gift": GIFT,
    "gift_upgrade_sent": GIFT,
    "unique_gift": {"gift": UNIQUE, "origin": "transfer"},
    "connected_website": "example.org",
    "write_access_allowed": {},
    "passport_data": {"data": [], "credentials": {"data": "", "hash": "", "secret": ""}},
    "proximity_alert_triggered": {"traveler": ANN, "watcher": BOB, "distance": 5},
    "boost_added": {"boost_count": 1},
    "chat_background_set": {
        "type": {"type": "chat_theme", "theme_name": "x"},
    },
    "checklist_tasks_done": {"marked_as_done_task_ids": [1]},
    "checklist_tasks_added": {"tasks": CHECKLIST["tasks"]},
    "community_chat_added": {"community": {"id": 1, "name": "C"}},
    "community_chat_removed": {},
    "direct_message_price_changed": {"are_direct_messages_enabled": True},
    "forum_topic_created": {"name": "T", "icon_color": 1},
    "forum_topic_edited": {"name": "T"},
    "forum_topic_closed": {},
    "forum_topic_reopened": {},
    "general_forum_topic_hidden": {},
    "general_forum_topic_unhidden": {},
    "giveaway_created": {},
    "giveaway_completed": {"winner_count": 1},
    "managed_bot_created": {"bot": BOB | {"is_bot": True}},
    "paid_message_price_changed": {"paid_message_star_count": 1},
    "poll_option_added": {"option_persistent_id": "p", "option_text": "x"},
    "poll_option_deleted": {"option_persistent_id": "p", "option_text": "x"},
    "suggested_post_approved": {"send_date": SENT},
    "suggested_post_approval_failed": {"price": {"currency": "XTR", "amount": 1}},
    "suggested_post_declined": {},
    "suggested_post_paid": {"currency": "XTR"},
    "suggested_post_refunded": {"reason": "post_deleted"},
    "video_chat_scheduled": {"start_date": SENT},
    "video_chat_started": {},
    "video_chat_ended": {"duration": 3},
    "video_chat_participants_invited": {"users": [BOB]},
    "web_app_data": {"data": "x", "button_text": "y"},
}
"""Mostly service messages, which have no words of a person."""

TOLD = {"migrate_to_chat_id", "migrate_from_chat_id"}
"""Kinds that are handled separately from messages."""

ABOUT = {
    *("message_thread_id", "direct_messages_topic", "from", "sender_chat", "sender_boost_count"),
    *("sender_business_bot", "sender_tag", "receiver_user", "ephemeral_message_id"),
    *("guest_query_id", "business_connection_id", "forward_origin", "is_topic_message"),
    *("is_automatic_forward", "reply_to_message", "external_reply", "quote", "reply_to_story"),
    *("reply_to_checklist_task_id", "reply_to_poll_option_id", "via_bot", "guest_bot_caller_user"),
    *("guest_bot_caller_chat", "edit_date", "has_protected_content", "is_from_offline"),
    *("is_paid_post", "media_group_id", "author_signature", "paid_star_count", "entities"),
    *("link_preview_options", "suggested_post_info", "effect_id", "caption", "caption_entities"),
    *("show_caption_above_media", "has_media_spoiler", "reply_markup"),
}
"""Fields about a message that are no kind."""

NAMED = {*FILES, *WORDS, *NOTES, *IGNORED, *TOLD, *ABOUT}
