"""The commands: one thin file each; nothing but parsing, calling, printing."""
