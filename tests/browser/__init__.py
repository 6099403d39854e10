"""The timeline's page in Debian's Chromium, driven by Playwright."""
