// String literals as ids.
#include "intern.h"

#include "test.h"

TEST(a_text_has_one_id_at_any_address) {
    start_recorder(16);
    char first[] = "AllReduce", second[] = "AllReduce", other[] = "Broadcast";
    u8 id = intern(first);
    CHECK(id != 0);
    CHECK_EQUAL(intern(first), id);
    CHECK_EQUAL(intern(second), id);
    CHECK(intern(other) != id);
    CHECK_EQUAL(intern(NULL), 0);
}

TEST(a_literal_is_found_by_its_address_alone) {
    start_recorder(16);
    char text[] = "RING";
    u8 id = intern(text), found;
    memcpy(text, "TREE", 4);  // the text is not read again
    CHECK(intern_find(text, &found));
    CHECK_EQUAL(found, id);
}

TEST(ids_outlive_forgotten_addresses) {
    start_recorder(16);
    char text[] = "SIMPLE";
    u8 id = intern(text), found;
    intern_forget_addresses();
    CHECK(!intern_find(text, &found));
    CHECK_EQUAL(intern(text), id);
}

TEST(the_255th_text_and_all_after_it_share_an_id) {
    start_recorder(16);
    static char texts[300][16];
    u8 last = 0;
    for (int i = 0; i < 254; i++) {
        snprintf(texts[i], sizeof texts[i], "t%d", i);
        last = intern(texts[i]);
    }
    CHECK_EQUAL(last, 254);
    for (int i = 254; i < 300; i++) {
        snprintf(texts[i], sizeof texts[i], "t%d", i);
        CHECK_EQUAL(intern(texts[i]), 255);
    }
    CHECK_EQUAL(intern(texts[7]), 8);
}
