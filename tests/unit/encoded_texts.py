"""Sentences of many languages and the encodings that their files were written in, for telling those apart."""

# ruff: noqa: E501 - tables

SENTENCES: dict[str, tuple[str, ...]] = {
    "french": (
        "Le café est fermé à Noël, c'est bien dommage.", "La livraison a été très rapide et le colis était intact.",
        "Je suis déçu : l'appareil s'arrête après dix minutes d'utilisation.", "Où puis-je trouver ma facture du mois dernier ?",
        "Le vendeur a été agréable, mais le prix reste trop élevé.", "Ça marche à merveille, même sans connexion.",
    ),
    "german": (
        "Die Größe passt überhaupt nicht. Schöne Grüße aus Köln!", "Das Gerät schaltet sich nach fünf Minuten ab.",
        "Ich möchte mein Geld zurück, und zwar schnell.", "Für diesen Preis hätte ich mehr erwartet.",
        "Der Film war großartig, die Schauspieler überzeugend.", "Können Sie mir die Rechnung noch einmal schicken?",
    ),
    "spanish": (
        "¿Dónde está mi pedido? El año pasado llegó antes.", "El teléfono dejó de funcionar después de una semana.",
        "Muy buena atención, volveré a comprar aquí.", "La habitación era pequeña y el baño estaba sucio.",
        "Todavía no me han devuelto el dinero.", "¡Qué película más aburrida!",
    ),
    "portuguese": (
        "A encomenda não chegou e ninguém responde às mensagens.", "O produto é ótimo, a entrega também foi rápida.",
        "Não há informação sobre a devolução do dinheiro.", "A refeição estava fria e a atenção foi péssima.",
        "Amanhã vou à loja pedir uma explicação.", "Gostei muito da canção do início.",
    ),
    "swedish": (
        "Leveransen tog för lång tid och lådan var skadad.", "Jag är väldigt nöjd med köpet.",
        "Går det att byta storlek på skorna?", "Filmen var tråkig från början till slut.",
        "Kundtjänsten svarade först efter två veckor.", "Högtalaren låter sämre än väntat.",
    ),
    "typographic": (
        "He said “never again” – it’s the worst… €50 gone™.", "I can’t believe it’s over — what a film!",
        "The “premium” version isn’t worth the money…", "We’ve waited three weeks for the parcel – nothing.",
        "Don’t buy it; it’s broken.", "She’d ask for “more”, and that’s fine.",
    ),
    "polish": (
        "Przesyłka dotarła uszkodzona, proszę o zwrot pieniędzy.", "Obsługa była bardzo miła i życzliwa.",
        "Książka jest świetna, polecam każdemu.", "Nie mogę się zalogować od środy.",
        "Łóżko jest wygodne, ale źle wykończone.", "Dlaczego paczka jeszcze nie przyszła?",
    ),
    "czech": (
        "Zásilka přišla pozdě a krabice byla poškozená.", "Příběh je skvělý, ale konec mě zklamal.",
        "Nemůžu se přihlásit ke svému účtu.", "Děkuji za rychlé vyřízení reklamace.",
        "Telefon se po týdnu přestal nabíjet.", "Žádám o vrácení peněz co nejdříve.",
    ),
    "hungarian": (
        "A csomag késve érkezett és sérült volt.", "Nagyon elégedett vagyok a készülékkel.",
        "Miért nem válaszol senki az üzeneteimre?", "A könyv nagyszerű, mindenkinek ajánlom.",
        "Szeretném visszakapni a pénzemet.", "Az új fűtőtest túl hangos, és őszintén szólva gyenge.",
    ),
    "russian": (
        "Доставка опоздала на три дня, очень плохо.", "Фильм понравился, актёры играют замечательно.",
        "Верните, пожалуйста, деньги за заказ.", "Телефон перестал работать через неделю.",
        "Спасибо большое, всё пришло вовремя!", "Почему я не могу войти в личный кабинет?",
    ),
    "ukrainian": (
        "Посилка прийшла із запізненням, упаковка пошкоджена.", "Дуже дякую, все працює чудово!",
        "Чому я не можу увійти до свого облікового запису?", "Фільм сподобався, раджу всім подивитися.",
        "Поверніть, будь ласка, гроші за замовлення.", "Якість гірша, ніж я очікував.",
    ),
    "bulgarian": (
        "Пратката закъсня с три дни, много съм разочарован.", "Филмът беше чудесен, препоръчвам го на всички.",
        "Защо не мога да вляза в профила си?", "Искам си парите обратно възможно най-скоро.",
        "Благодаря, всичко пристигна навреме.", "Качеството е по-лошо от очакваното.",
    ),
    "greek": (
        "Το δέμα άργησε πολύ και έφτασε σπασμένο.", "Η ταινία ήταν υπέροχη, τη συνιστώ σε όλους.",
        "Γιατί δεν μπορώ να συνδεθώ στον λογαριασμό μου;", "Θέλω τα χρήματά μου πίσω το συντομότερο.",
        "Ευχαριστώ πολύ για τη γρήγορη εξυπηρέτηση.", "Το κινητό σταμάτησε να λειτουργεί μετά από μία εβδομάδα.",
    ),
    "turkish": (
        "Kargo çok geç geldi, kutusu da ezilmişti.", "Film çok güzeldi, herkese tavsiye ediyorum.",
        "Hesabıma neden giriş yapamıyorum?", "Paramın bir an önce iade edilmesini istiyorum.",
        "Teşekkürler, her şey zamanında ulaştı.", "Ürün beklediğimden daha küçük çıktı, ışığı da zayıf.",
    ),
    "lithuanian": (
        "Siunta atėjo pavėluotai, dėžė buvo pažeista.", "Filmas labai patiko, rekomenduoju visiems.",
        "Kodėl negaliu prisijungti prie savo paskyros?", "Norėčiau kuo greičiau atgauti pinigus.",
        "Ačiū, viskas atvyko laiku.", "Telefonas po savaitės nustojo veikęs, gaila išleistų pinigų.",
    ),
    "latvian": (
        "Sūtījums pienāca ar kavēšanos un bija bojāts.", "Filma bija lieliska, iesaku to visiem.",
        "Kāpēc es nevaru pieslēgties savam kontam?", "Vēlos pēc iespējas ātrāk atgūt naudu.",
        "Paldies, viss pienāca laikā.", "Telefons pēc nedēļas pārstāja darboties.",
    ),
    "hebrew": (
        "החבילה הגיעה באיחור של שלושה ימים.", "הסרט היה נפלא, אני ממליץ עליו לכולם.",
        "למה אני לא מצליח להיכנס לחשבון שלי?", "אני רוצה את הכסף שלי בחזרה.",
        "תודה רבה, הכול הגיע בזמן.", "הטלפון הפסיק לעבוד אחרי שבוע.",
    ),
    "arabic": (
        "وصل الطرد متأخرا ثلاثة أيام وكان مكسورا.", "الفيلم كان رائعا وأنصح الجميع بمشاهدته.",
        "لماذا لا أستطيع الدخول إلى حسابي؟", "أريد استرجاع نقودي في أسرع وقت.",
        "شكرا جزيلا، وصل كل شيء في موعده.", "توقف الهاتف عن العمل بعد أسبوع.",
    ),
    "thai": (
        "พัสดุมาช้าสามวันและกล่องเสียหาย", "หนังสนุกมาก อยากแนะนำให้ทุกคนดู", "ทำไมฉันเข้าสู่ระบบไม่ได้",
        "ขอเงินคืนโดยเร็วที่สุด", "ขอบคุณมาก ทุกอย่างมาตรงเวลา", "โทรศัพท์ใช้งานไม่ได้หลังจากหนึ่งสัปดาห์",
    ),
    "japanese": (
        "朝食はとても美味しかったです。また利用したいと思います。", "部屋が狭くて、少し寒かった。", "荷物がまだ届いていません。",
        "アカウントにログインできないのはなぜですか？", "できるだけ早く返金してください。", "スタッフの対応が親切で良かったです。",
    ),
    "korean": (
        "배송이 너무 늦어서 실망했습니다. 다시는 사지 않을 거예요.", "영화가 정말 재미있었어요. 추천합니다.",
        "왜 로그인이 안 되나요?", "가능한 한 빨리 환불해 주세요.", "감사합니다, 모두 제시간에 도착했어요.", "방이 작고 조금 추웠습니다.",
    ),
    "chinese": (
        "房间很小，服务态度也不好，下次不会再来了。", "手机屏幕碎了，怎么退货？", "电影非常好看，推荐给大家。",
        "为什么我登录不了自己的账户？", "请尽快把钱退给我。", "谢谢，东西都按时到了。",
    ),
    "taiwanese": (
        "房間很小，服務態度也不好，下次不會再來了。", "手機螢幕碎了，怎麼退貨？", "電影非常好看，推薦給大家。",
        "為什麼我登入不了自己的帳戶？", "請盡快把錢退給我。", "謝謝，東西都準時到了。",
    ),
}  # fmt: skip
WRITTEN_IN: tuple[tuple[str, str], ...] = (
    ("french", "utf-8"), ("russian", "utf-8-sig"), ("greek", "utf-16"), ("turkish", "utf-16-le"), ("polish", "utf-16-be"),
    ("chinese", "utf-32"),
    ("french", "latin-1"), ("german", "latin-1"), ("spanish", "latin-1"), ("portuguese", "latin-1"), ("swedish", "latin-1"),
    ("french", "cp1252"), ("typographic", "cp1252"),
    ("polish", "iso-8859-2"), ("czech", "iso-8859-2"), ("hungarian", "iso-8859-2"),
    ("polish", "cp1250"), ("czech", "cp1250"), ("hungarian", "cp1250"),
    ("russian", "cp1251"), ("ukrainian", "cp1251"), ("bulgarian", "cp1251"), ("russian", "koi8-r"), ("ukrainian", "koi8-u"),
    ("russian", "iso-8859-5"), ("russian", "mac-cyrillic"), ("russian", "cp866"),
    ("greek", "cp1253"), ("greek", "iso-8859-7"), ("turkish", "cp1254"), ("turkish", "iso-8859-9"),
    ("lithuanian", "cp1257"), ("latvian", "cp1257"), ("hebrew", "cp1255"), ("hebrew", "iso-8859-8"), ("arabic", "cp1256"),
    ("arabic", "iso-8859-6"), ("thai", "tis-620"),
    ("japanese", "shift_jis"), ("japanese", "euc_jp"), ("japanese", "iso-2022-jp"), ("korean", "euc-kr"), ("korean", "cp949"),
    ("chinese", "gb18030"), ("taiwanese", "big5"),
    ("german", "cp437"), ("french", "cp850"), ("polish", "cp852"), ("french", "mac-roman"),
)  # fmt: skip


def write_table(language: str, sentences: int, *, copies: int = 1) -> str:
    """A CSV of some sentences of a language among plain ASCII."""
    rows = [f'"{sentence}",{"ab"[n % 2]}\n' for n, sentence in enumerate(SENTENCES[language][:sentences])]
    return "text,label\n" + "".join(rows) * copies + "plain words,b\n"
